package mongodb_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xdg-go/scram"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// imitation is a replica set of one member, behind a relay, that speaks MongoDB's wire protocol to the
// real driver and understands the commands of this package, and no others. It keeps
// its documents in memory. It does what MongoDB's manual says, and what mongod 4.4 was seen to do:
// tests of the faults that it showed say so.
type imitation struct {
	*stores.Relay
	t testing.TB

	mu          sync.Mutex
	password    string // of the user app; empty: clients need not log in
	standalone  bool   // no replica set: no change streams
	sessionless bool   // it knows no sessions, as some that only speak the protocol
	said        bson.D // what it adds to hello
	config      bson.D // of the replica set; nil: it refuses to tell
	docs        map[string]map[string]bson.Raw
	capped      map[string][]bson.Raw // by collection, in natural order
	events      []bson.D              // the oplog, as change events
	majority    *snapshot             // what a majority has, or a standalone's journal, if that is held up
	waiting     int                   // writes that wait for the majority or the journal
	crashes     int
	secondary   bool   // it is one, though the set's only member
	folds       bool   // the collation of its collections ignores case
	unique      string // a field, besides _id, of which no two documents may have the same value
	cursors     map[int64]*cursor
	commands    map[string][]time.Duration // all there were: the maxTimeMS of each
	more        chan struct{}              // closed by the next event
	fault       func(command string) *fault
}

// doc is a document of these keys and values, by turns.
func doc(keysAndValues ...any) (d bson.D) {
	for i := 0; i < len(keysAndValues); i += 2 {
		d = append(d, bson.E{Key: keysAndValues[i].(string), Value: keysAndValues[i+1]})
	}
	return d
}

// snapshot is what there was at a time.
type snapshot struct {
	docs   map[string]map[string]bson.Raw
	events int // how many had been
}

// hold keeps writes from the majority, or from a standalone's journal, until release.
func (s *imitation) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.majority = &snapshot{map[string]map[string]bson.Raw{}, len(s.events)}
	for coll, docs := range s.docs {
		s.majority.docs[coll] = maps.Clone(docs)
	}
}

func (s *imitation) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.majority = nil
	s.wake()
}

// crash undoes what the journal does not have.
func (s *imitation) crash() {
	s.Refuse()
	s.mu.Lock()
	s.docs, s.events, s.majority = s.majority.docs, s.events[:s.majority.events], nil
	s.crashes++
	s.wake()
	s.mu.Unlock()
	s.Heal()
}

// awaitWaiting waits until that many writes wait for the majority.
func (s *imitation) awaitWaiting(want int) {
	s.t.Helper()
	feedtest.Eventually(s.t, fmt.Sprintf("%d writes wait for the majority", want), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.waiting == want
	})
}

// givenUp is the error of a call that is given up when so many writes wait for the majority.
func (s *imitation) givenUp(waiting int, call func(ctx context.Context) error) error {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	failed := make(chan error, 1)
	go func() { failed <- call(ctx) }()
	s.awaitWaiting(waiting)
	cancel()
	return <-failed
}

// fault is what befalls a command.
type fault struct {
	code    int32  // it is answered with this error, and does nothing
	text    string // of the error
	cut     bool   // the connection is cut before it does anything
	cutLate bool   // the connection is cut when it has been done, before the answer
	hang    bool   // it is done, and not answered
	concern bool   // it is done, and answered with a write concern error
	lie     bson.D // it does nothing, and this is the answer
}

// cursor is an open change stream, or an open tailable cursor.
type cursor struct {
	coll string
	next int  // the index of the next event
	tail bool // of a capped collection
	dead bool // invalidated
}

func imitate(t testing.TB) *imitation { return imitateTLS(t, nil) }

// imitated is an election on a server of its own.
func imitated(t testing.TB) (*imitation, *mongodb.Decider) {
	t.Helper()
	s := imitate(t)
	return s, web(t, s.uri())
}

// alone is a standalone.
func alone(t testing.TB) *imitation {
	s := imitate(t)
	s.standalone = true
	return s
}

func imitateTLS(t testing.TB, secure *tls.Config) *imitation {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &imitation{
		Relay: stores.NewRelay(t, l.Addr().String()), t: t, docs: map[string]map[string]bson.Raw{}, capped: map[string][]bson.Raw{},
		cursors: map[int64]*cursor{}, commands: map[string][]time.Duration{}, more: make(chan struct{}),
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s
}

func (s *imitation) uri() string {
	if s.standalone {
		return "mongodb://" + s.Addr + "/?"
	}
	return "mongodb://" + s.Addr + "/?replicaSet=rs0"
}

// at is the address of the election "web", with more parameters.
func (s *imitation) at(more string) string {
	return "mongodb://" + s.Addr + "/" + database + "/" + collection + "/web?replicaSet=rs0" + more
}

// Stop and Start are those of a storetest.Server. Documents and the oplog stay.
func (s *imitation) Stop() {
	s.Refuse()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.cursors)
}

func (s *imitation) Start(testing.TB) { s.Heal() }

// with runs f while no command is done.
func (s *imitation) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// inject makes f say what befalls each command from now on.
func (s *imitation) inject(f func(command string) *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// befall has f befall these commands from now on.
func (s *imitation) befall(f *fault, commands ...string) {
	s.inject(func(c string) *fault {
		if slices.Contains(commands, c) {
			return f
		}
		return nil
	})
}

// count is how many of these commands there were.
func (s *imitation) count(names ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		n += len(s.commands[name])
	}
	return n
}

// limits are the maxTimeMS of all commands of that name, zero if one had none.
func (s *imitation) limits(name string) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.commands[name])
}

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013
)

type request struct {
	id, op uint32
	body   bson.Raw
	docs   []bson.Raw // of a section beside the body
}

// name is the command's.
func (r *request) name() string {
	elements, err := r.body.Elements()
	if err != nil || len(elements) == 0 {
		return ""
	}
	return elements[0].Key()
}

// text is a field's.
func (r *request) text(path ...string) string { return r.body.Lookup(path...).StringValue() }

// limit is the command's maxTimeMS, or zero.
func (r *request) limit() time.Duration {
	ms, _ := r.body.Lookup("maxTimeMS").AsInt64OK()
	return time.Duration(ms) * time.Millisecond
}

func (s *imitation) serve(c net.Conn) {
	ctx, gone := context.WithCancel(context.Background())
	defer func() { gone(); c.Close() }()
	requests := make(chan *request)
	go func() { // reads on while a getMore waits, so that it learns of the connection's end
		defer gone()
		for {
			r, err := receive(c)
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	login := s.logins()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-requests:
			answer, more := login.pass(r), true
			if answer == nil {
				answer, more = s.handle(ctx, r)
			}
			if !more || answer != nil && send(c, r, answer) != nil {
				return
			}
		}
	}
}

// login is how far a connection's client is with logging in.
type login struct {
	*scram.ServerConversation
	in bool
}

// logins is the server's side of SCRAM-SHA-256 for the one user there is.
func (s *imitation) logins() *login {
	s.mu.Lock()
	defer s.mu.Unlock()
	client, err := scram.SHA256.NewClient("app", s.password, "")
	if err != nil {
		s.t.Error(err)
	}
	server, err := scram.SHA256.NewServer(func(user string) (scram.StoredCredentials, error) {
		if user != "app" {
			return scram.StoredCredentials{}, errors.New("there is no such user")
		}
		return client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: "salt", Iters: 4096})
	})
	if err != nil {
		s.t.Error(err)
	}
	return &login{ServerConversation: server.NewConversation(), in: s.password == ""}
}

// pass returns the answer to a command that logs in, or that a client may not send before
// it has, and else nil.
func (l *login) pass(r *request) bson.D {
	switch name := r.name(); name {
	case "hello", "isMaster", "ismaster":
	case "saslStart", "saslContinue":
		_, payload := r.body.Lookup("payload").Binary()
		answer, err := l.Step(string(payload))
		if err != nil || r.text("$db") != "admin" { // which keeps the user
			return failure(18, "Authentication failed.")
		}
		l.in = name == "saslContinue"
		return doc("conversationId", 1, "done", l.in, "payload", bson.Binary{Data: []byte(answer)}, "ok", 1)
	default:
		if !l.in {
			return failure(13, "Command "+name+" requires authentication")
		}
	}
	return nil
}

func receive(c io.Reader) (*request, error) {
	var head [16]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	u32 := binary.LittleEndian.Uint32
	m := make([]byte, u32(head[:])-16)
	if _, err := io.ReadFull(c, m); err != nil {
		return nil, err
	}
	r := &request{id: u32(head[4:]), op: u32(head[12:])}
	if r.op == opQuery {
		m = m[4:]
		for m[0] != 0 { // the collection's name
			m = m[1:]
		}
		r.body = bson.Raw(m[1+8:])
		return r, nil
	}
	for m = m[4:]; len(m) > 0; {
		kind := m[0]
		n := u32(m[1:])
		section := m[1 : 1+n]
		m = m[1+n:]
		if kind == 0 {
			r.body = bson.Raw(section)
			continue
		}
		section = section[4:]
		for section[0] != 0 {
			section = section[1:]
		}
		for section = section[1:]; len(section) > 0; section = section[u32(section):] {
			r.docs = append(r.docs, bson.Raw(section[:u32(section)]))
		}
	}
	return r, nil
}

func send(c io.Writer, r *request, answer bson.D) error {
	doc, err := bson.Marshal(answer)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	body := le.AppendUint32(nil, 0) // flags
	op := uint32(opMsg)
	if r.op == opQuery {
		op = opReply
		body = append(body, make([]byte, 12)...) // no cursor, from 0
		body = le.AppendUint32(body, 1)
	} else {
		body = append(body, 0)
	}
	body = append(body, doc...)
	m := le.AppendUint32(nil, uint32(16+len(body)))
	m = le.AppendUint32(m, 0)
	m = le.AppendUint32(m, r.id)
	m = le.AppendUint32(m, op)
	_, err = c.Write(append(m, body...))
	return err
}

// handle does one command. Without more the connection is cut.
func (s *imitation) handle(ctx context.Context, r *request) (answer bson.D, more bool) {
	name := r.name()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands[name] = append(s.commands[name], r.limit())
	f := &fault{}
	if s.fault != nil {
		f = cmp.Or(s.fault(name), f)
	}
	switch {
	case f.cut:
		return nil, false
	case f.code != 0:
		return failure(f.code, f.text), true
	case f.lie != nil:
		return f.lie, true
	}
	answer = s.command(ctx, name, r)
	switch {
	case f.cutLate:
		return nil, false
	case f.hang:
		return nil, true
	case f.concern:
		answer = append(answer, doc("writeConcernError", doc("code", 64, "errmsg", "waiting for replication timed out"))...)
	}
	if !s.standalone {
		at := s.now()
		if name == "find" || name == "aggregate" || name == "getMore" {
			at = s.timeOf(s.common()) // of what a reader may have seen
		}
		answer = append(answer, doc("operationTime", at, "$clusterTime", doc("clusterTime", s.now(),
			"signature", doc("hash", bson.Binary{Data: make([]byte, 20)}, "keyId", int64(0))))...)
	}
	return answer, true
}

// now is the logical time: that of the last event.
func (s *imitation) now() bson.Timestamp { return s.timeOf(len(s.events)) }

func (s *imitation) timeOf(events int) bson.Timestamp {
	return bson.Timestamp{T: 1_700_000_000, I: uint32(events + 1)}
}

// common is how many events a majority has, or the journal.
func (s *imitation) common() int {
	if s.majority != nil {
		return s.majority.events
	}
	return len(s.events)
}

// await waits until ready, for no longer than limit (zero: for ever), and says whether it is.
func (s *imitation) await(ctx context.Context, limit time.Duration, ready func() bool) bool {
	var over <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	for !ready() {
		more, left := s.more, false
		s.mu.Unlock()
		select {
		case <-more:
		case <-over:
			left = true
		case <-ctx.Done():
			left = true
		}
		s.mu.Lock()
		if left {
			return ready()
		}
	}
	return true
}

func failure(code int32, text string) bson.D {
	name := fmt.Sprint("Location", code)
	if code == 18 {
		name = "AuthenticationFailed"
	}
	return doc("ok", 0, "code", code, "errmsg", text, "codeName", name)
}

func (s *imitation) hello() bson.D {
	d := doc("helloOk", true, "ismaster", !s.secondary, "isWritablePrimary", !s.secondary, "secondary", s.secondary,
		"maxBsonObjectSize", 16<<20, "maxMessageSizeBytes", 48_000_000, "maxWriteBatchSize", 100_000,
		"localTime", time.Now(), "minWireVersion", 0, "maxWireVersion", 21, "ok", 1)
	if !s.sessionless {
		d = append(d, doc("logicalSessionTimeoutMinutes", 30)...)
	}
	if s.password != "" {
		d = append(d, doc("saslSupportedMechs", bson.A{"SCRAM-SHA-256"})...)
	}
	if !s.standalone {
		d = append(d, doc("setName", "rs0", "setVersion", 1, "hosts", bson.A{s.Addr}, "primary", s.Addr, "me", s.Addr)...)
	}
	return append(d, s.said...)
}

// The imitation's commands. Each holds the command to what this package promises:
// write concern, read concern and so on.

func (s *imitation) command(ctx context.Context, name string, r *request) bson.D {
	switch name {
	case "hello", "isMaster", "ismaster":
		return s.hello()
	case "ping", "endSessions", "killCursors":
		return doc("ok", 1)
	case "replSetGetConfig":
		if s.config == nil {
			return failure(13, "not authorized on admin to execute command { replSetGetConfig: 1 }")
		}
		return doc("ok", 1, "config", s.config)
	case "create":
		return s.create(r)
	case "listCollections":
		return s.list(r)
	case "find":
		return s.find(ctx, r)
	case "insert":
		return s.insert(r)
	case "findAndModify":
		return s.replicated(r, s.update(r))
	case "aggregate":
		return s.watch(r)
	case "getMore":
		return s.getMore(ctx, r)
	}
	s.t.Errorf("imitation: the command %q is unknown: %v", name, r.body)
	return failure(59, "no such command: "+name)
}

// wants fails the test if a command lacks what it must have.
func (s *imitation) wants(r *request, value string, path ...string) {
	if v, err := r.body.LookupErr(path...); err != nil || v.String() != value {
		s.t.Errorf("imitation: %v: %v is %v, want %s", r.body, path, v, value)
	}
}

// replicated is the answer to a write, once a majority has it and all before it, or once a
// standalone's journal has. A mongod does not give the wait up when the client has gone, but when
// maxTimeMS is over.
func (s *imitation) replicated(r *request, answer bson.D) bson.D {
	n, life := len(s.events), s.crashes
	s.waiting++
	done := s.await(s.t.Context(), r.limit(), func() bool { return s.common() >= n || s.crashes != life })
	s.waiting--
	if !done {
		answer = append(answer, doc("writeConcernError", doc("code", 50, "codeName", "MaxTimeMSExpired", "errmsg", "operation exceeded time limit"))...)
	}
	return answer
}

func (s *imitation) find(ctx context.Context, r *request) bson.D {
	coll := r.text("find")
	batch := bson.A{}
	if tailable, ok := r.body.Lookup("tailable").BooleanOK(); ok && tailable {
		for _, d := range s.capped[coll] {
			batch = append(batch, d)
		}
		if len(batch) == 0 {
			return s.batch(coll, 0, "firstBatch", batch) // MongoDB: a cursor that is dead at once
		}
		return s.batch(coll, s.open(&cursor{coll: coll, next: len(batch), tail: true}), "firstBatch", batch)
	}
	s.wants(r, `"majority"`, "readConcern", "level")
	docs := s.docs
	if !s.standalone { // which knows no other reads than those of what it has
		if _, i, after := r.body.Lookup("readConcern", "afterClusterTime").TimestampOK(); after && !s.await(ctx, r.limit(), func() bool { return s.timeOf(s.common()).I >= i }) {
			return failure(50, "operation exceeded time limit")
		}
		if s.majority != nil {
			docs = s.majority.docs
		}
	}
	if d := docs[coll][s.key(docs[coll], r.text("filter", "_id"))]; d != nil {
		batch = append(batch, d)
	}
	return s.batch(coll, 0, "firstBatch", batch)
}

// key is the _id of the document that id finds, or id itself.
func (s *imitation) key(docs map[string]bson.Raw, id string) string {
	for other := range docs {
		if s.folds && strings.EqualFold(other, id) {
			return other
		}
	}
	return id
}

// duplicate is the error of a write that a unique index refuses.
func duplicate(index, field string, value any) bson.D {
	text := fmt.Sprintf("E11000 duplicate key error collection: %s.%s index: %s dup key: { %s: ... }", database, collection, index, field)
	return append(failure(11000, text), doc("keyPattern", doc(field, 1), "keyValue", doc(field, value))...)
}

func (s *imitation) insert(r *request) bson.D {
	coll := r.text("insert")
	if s.capped[coll] == nil {
		s.t.Errorf("imitation: an insert into %s, which is not capped", coll)
		return failure(20, "no inserts")
	}
	s.capped[coll] = append(s.capped[coll], r.docs[0])
	s.wake()
	return doc("ok", 1, "n", 1)
}

// update is findAndModify with $set and $currentDate.
func (s *imitation) update(r *request) bson.D {
	if s.secondary {
		return failure(10107, "not master")
	}
	s.wants(r, `"majority"`, "writeConcern", "w")
	s.wants(r, `true`, "writeConcern", "j")
	s.wants(r, "true", "new")
	coll, asked := r.text("findAndModify"), r.text("query", "_id")
	set := fields(r.body.Lookup("update", "$set").Document())
	set["written"] = bson.NewDateTimeFromTime(time.Now())
	id := s.key(s.docs[coll], asked)
	was := s.docs[coll][id]
	upsert, _ := r.body.Lookup("upsert").BooleanOK()
	switch {
	case was != nil && was.Lookup("version").Equal(r.body.Lookup("query", "version")):
		return doc("ok", 1, "value", s.change(coll, id, set))
	case !upsert:
		return doc("ok", 1, "value", nil)
	case was != nil:
		return duplicate("_id_", "_id", asked)
	}
	for _, other := range s.docs[coll] { // an upsert of this package has none of the other fields: null
		if value := other.Lookup(s.unique); s.unique != "" && value.IsZero() {
			return duplicate(s.unique+"_1", s.unique, nil)
		}
	}
	next := fields(r.body.Lookup("query").Document()) // an upsert inserts these, and what is set
	maps.Copy(next, set)
	return doc("ok", 1, "value", s.put(coll, asked, next))
}

func fields(d bson.Raw) bson.M {
	m := bson.M{}
	elements, _ := d.Elements()
	for _, e := range elements {
		m[e.Key()] = e.Value()
	}
	return m
}

// change sets fields of a document.
func (s *imitation) change(coll, id string, set bson.M) bson.Raw {
	next := fields(s.docs[coll][id])
	maps.Copy(next, set)
	s.docs[coll][id] = s.marshal(next)
	s.event(coll, id, "update", doc("updateDescription", doc("updatedFields", set)))
	return s.docs[coll][id]
}

// put inserts or replaces a document.
func (s *imitation) put(coll, id string, d bson.M) bson.Raw {
	if s.docs[coll] == nil {
		s.docs[coll] = map[string]bson.Raw{}
	}
	kind := "insert"
	if s.docs[coll][id] != nil {
		kind = "replace"
	}
	s.docs[coll][id] = s.marshal(d)
	s.event(coll, id, kind, doc("fullDocument", s.docs[coll][id]))
	return s.docs[coll][id]
}

func (s *imitation) marshal(d any) bson.Raw {
	raw, err := bson.Marshal(d)
	if err != nil {
		s.t.Errorf("imitation: %v", err)
	}
	return raw
}

// set is what an operator does by hand: a document with an _id, or nil to delete "web".
func (s *imitation) set(d bson.M) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d != nil {
		s.put(collection, d["_id"].(string), d)
		return
	}
	delete(s.docs[collection], "web")
	s.event(collection, "web", "delete", nil)
}

// touch sets one field by hand, of all that an update sets.
func (s *imitation) touch(id, field string, value any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(collection, id, bson.M{field: value})
}

// event adds to the oplog.
func (s *imitation) event(coll, id, kind string, more bson.D) {
	e := doc("_id", token(len(s.events)+1), "operationType", kind, "ns", doc("coll", coll), "documentKey", doc("_id", id), "clusterTime", s.timeOf(len(s.events)+1))
	s.events = append(s.events, append(e, more...))
	s.wake()
}

func (s *imitation) wake() {
	close(s.more)
	s.more = make(chan struct{})
}

// token is a resume token: how many events have been.
func token(n int) bson.D { return doc("_data", fmt.Sprintf("%08d", n)) }

func (s *imitation) open(c *cursor) int64 {
	id := int64(len(s.commands) + len(s.cursors) + 1)
	for s.cursors[id] != nil {
		id++
	}
	s.cursors[id] = c
	return id
}

// watch opens a change stream.
func (s *imitation) watch(r *request) bson.D {
	if s.standalone {
		return failure(40573, "The $changeStream stage is only supported on replica sets")
	}
	if level := r.body.Lookup("readConcern", "level").StringValue(); level != "majority" {
		return failure(72, "Aggregation stage $changeStream cannot run with a readConcern other than 'majority'. Current readConcern: "+level)
	}
	coll := r.text("aggregate")
	stages, _ := r.body.Lookup("pipeline").Array().Values()
	stream, match := stages[0].Document().Lookup("$changeStream").Document(), stages[1].Document().Lookup("$match", "documentKey._id")
	c := &cursor{coll: coll + "\x00" + match.StringValue(), next: len(s.events)}
	if at, err := stream.LookupErr("resumeAfter"); err == nil {
		n, err := strconv.Atoi(at.Document().Lookup("_data").StringValue())
		if err != nil {
			s.t.Errorf("imitation: %v", err)
		}
		c.next = n
	} else if at, err := stream.LookupErr("startAtOperationTime"); err == nil {
		_, i := at.Timestamp()
		c.next = max(0, int(i)-1)
	}
	return s.batch(coll, s.open(c), "firstBatch", bson.A{})
}

// getMore waits for events, for as long as it may.
func (s *imitation) getMore(ctx context.Context, r *request) bson.D {
	id := r.body.Lookup("getMore").Int64()
	coll := r.text("collection")
	batch := bson.A{}
	s.await(ctx, cmp.Or(r.limit(), time.Second), func() bool {
		c := s.cursors[id]
		if c != nil && !c.dead {
			batch = s.news(c)
		}
		return c == nil || c.dead || len(batch) > 0
	})
	switch c := s.cursors[id]; {
	case c == nil:
		return failure(43, "cursor not found")
	case c.dead:
		delete(s.cursors, id)
		return s.batch(coll, 0, "nextBatch", bson.A{})
	}
	return s.batch(coll, id, "nextBatch", batch)
}

// news is what has happened since a cursor was asked last.
func (s *imitation) news(c *cursor) bson.A {
	batch := bson.A{}
	if c.tail {
		for _, d := range s.capped[c.coll][c.next:] {
			batch = append(batch, d)
		}
		c.next += len(batch)
		return batch
	}
	for ; c.next < s.common(); c.next++ {
		raw := s.marshal(s.events[c.next])
		if raw.Lookup("ns", "coll").StringValue()+"\x00"+raw.Lookup("documentKey", "_id").StringValue() == c.coll {
			batch = append(batch, raw)
		}
	}
	return batch
}

// invalidate ends all cursors, as where the collection is dropped.
func (s *imitation) invalidate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.cursors {
		c.dead = true
	}
	s.wake()
}

func (s *imitation) batch(coll string, id int64, name string, docs bson.A) bson.D {
	c := doc("id", id, "ns", "db."+coll, name, docs)
	if k := s.cursors[id]; k != nil && !k.tail {
		c = append(c, doc("postBatchResumeToken", token(k.next))...)
	}
	return doc("ok", 1, "cursor", c)
}

// list is listCollections, of the names in the filter.
func (s *imitation) list(r *request) bson.D {
	names, _ := r.body.Lookup("filter", "name", "$in").Array().Values()
	batch := bson.A{}
	for _, n := range names {
		name := n.StringValue()
		if capped := s.capped[name] != nil; capped || s.docs[name] != nil {
			batch = append(batch, doc("name", name, "type", "collection", "options", doc("capped", capped)))
		}
	}
	return s.batch("$cmd.listCollections", 0, "firstBatch", batch)
}

func (s *imitation) create(r *request) bson.D {
	coll := r.text("create")
	if s.capped[coll] != nil || s.docs[coll] != nil {
		return failure(48, "Collection already exists. NS: db."+coll)
	}
	s.wants(r, "true", "capped")
	s.capped[coll] = []bson.Raw{}
	return doc("ok", 1)
}
