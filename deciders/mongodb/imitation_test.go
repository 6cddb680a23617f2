package mongodb_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
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

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/c8e606e4/leaderelection/deciders/mongodb"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// imitation is a replica set of one member that speaks MongoDB's wire protocol to the
// real driver and understands the commands of this package, and no others. It keeps
// its documents in memory. It does what MongoDB's manual says, and what mongod 4.4 was seen to do:
// tests of the faults that it showed say so.
type imitation struct {
	t    testing.TB
	addr string
	ctx  context.Context
	kill context.CancelFunc

	mu          sync.Mutex
	l           net.Listener
	tls         *tls.Config // nil: plain TCP
	conns       map[net.Conn]bool
	password    string // of the user app; empty: clients need not log in
	standalone  bool   // no replica set: no change streams
	sessionless bool   // it knows no sessions, as some that only speak the protocol
	said        bson.D // what it adds to hello
	config      bson.D // of the replica set; nil: it refuses to tell
	docs        map[string]map[any]bson.Raw
	capped      map[string][]bson.Raw // by collection, in natural order
	events      []bson.D              // the oplog, as change events
	majority    *snapshot             // what a majority has, or a standalone's journal, if that is held up
	waiting     int                   // writes that wait for the majority or the journal
	secondary   bool                  // it is one, though the set's only member
	folds       bool                  // the collation of its collections ignores case
	unique      string                // a field, besides _id, of which no two documents may have the same value
	cursors     map[int64]*cursor
	replies     map[string]bson.D          // of retryable writes, by session and number
	commands    map[string][]time.Duration // all there were: the maxTimeMS of each
	more        chan struct{}              // closed by the next event
	fault       func(command string) *fault
}

// snapshot is what there was at a time.
type snapshot struct {
	docs   map[string]map[any]bson.Raw
	events int // how many had been
}

// hold keeps writes from the majority, or from a standalone's journal, until release.
func (s *imitation) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.majority = &snapshot{map[string]map[any]bson.Raw{}, len(s.events)}
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
	s.mu.Lock()
	s.docs, s.events = s.majority.docs, s.events[:s.majority.events]
	s.mu.Unlock()
	addr := s.addr
	s.stop()
	s.release()
	s.start(addr)
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

// fault is what befalls a command.
type fault struct {
	code    int32  // it is answered with this error, and does nothing
	text    string // of the error
	cut     bool   // the connection is cut before it does anything
	cutLate bool   // the connection is cut when it has been done, before the answer
	hang    bool   // it is done, and not answered
	concern bool   // it is done, and answered with a write concern error
	early   bool   // it is told of, as by servers that do so before they commit, undone, and not answered
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

func imitateTLS(t testing.TB, secure *tls.Config) *imitation {
	t.Helper()
	s := &imitation{
		t: t, tls: secure, docs: map[string]map[any]bson.Raw{}, capped: map[string][]bson.Raw{}, cursors: map[int64]*cursor{},
		replies: map[string]bson.D{}, commands: map[string][]time.Duration{}, more: make(chan struct{}),
	}
	s.start(fmt.Sprintf("127.0.0.1:%d", stores.FreePort(t)))
	t.Cleanup(s.stop)
	return s
}

func (s *imitation) uri() string { return "mongodb://" + s.addr + "/?replicaSet=rs0" }

// start listens, on the address that it had if it was stopped.
func (s *imitation) start(addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.tls != nil {
		l = tls.NewListener(l, s.tls)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.l, s.addr, s.conns = l, l.Addr().String(), map[net.Conn]bool{}
	s.ctx, s.kill = context.WithCancel(context.Background())
	ctx := s.ctx
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			if ctx.Err() != nil {
				c.Close()
			} else {
				s.conns[c] = true
				go s.serve(ctx, c)
			}
			s.mu.Unlock()
		}
	}()
}

// stop cuts all connections and closes all cursors, and listens no more. Documents and
// the oplog stay.
func (s *imitation) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	s.l.Close()
	for c := range s.conns {
		c.Close()
	}
	clear(s.cursors)
}

// awaitConnections waits until want connections are open, or more.
func (s *imitation) awaitConnections(ctx context.Context, want int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for again := time.NewTicker(5 * time.Millisecond); ; {
		s.mu.Lock()
		n := len(s.conns)
		s.mu.Unlock()
		if n >= want {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%d connections; want at least %d", n, want)
		}
	}
}

// inject makes f say what befalls each command from now on.
func (s *imitation) inject(f func(command string) *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
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

func (s *imitation) serve(ctx context.Context, c net.Conn) {
	ctx, gone := context.WithCancel(ctx)
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
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
		c.Close()
	}()
	s.mu.Lock()
	login := s.logins()
	s.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-requests:
			answer, more := login.pass(r), true
			if answer == nil {
				answer, more = s.handle(ctx, r)
			}
			if !more || ctx.Err() != nil {
				return
			}
			if answer != nil {
				if err := send(c, r, answer); err != nil {
					return
				}
			}
		}
	}
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
	elements, err := r.body.Elements()
	if err != nil || len(elements) == 0 {
		s.t.Errorf("imitation: a command that is none: %v", err)
		return nil, false
	}
	name := elements[0].Key()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands[name] = append(s.commands[name], r.limit())
	f := &fault{}
	if s.fault != nil {
		if g := s.fault(name); g != nil {
			f = g
		}
	}
	switch {
	case f.cut:
		return nil, false
	case f.code != 0:
		return failure(f.code, f.text), true
	case f.lie != nil:
		return f.lie, true
	}
	before := maps.Clone(s.docs[collection])
	answer = s.command(ctx, name, r)
	switch {
	case f.early:
		s.docs[collection] = before
		return nil, true
	case f.cutLate:
		return nil, false
	case f.hang:
		return nil, true
	case f.concern:
		answer = append(answer, bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 64}, {Key: "errmsg", Value: "waiting for replication timed out"}}})
	}
	if !s.standalone {
		at := s.now()
		if name == "find" || name == "aggregate" || name == "getMore" {
			at = s.timeOf(s.common()) // of what a reader may have seen
		}
		answer = append(answer, bson.E{Key: "operationTime", Value: at}, bson.E{Key: "$clusterTime", Value: bson.D{{Key: "clusterTime", Value: s.now()},
			{Key: "signature", Value: bson.D{{Key: "hash", Value: bson.Binary{Data: make([]byte, 20)}}, {Key: "keyId", Value: int64(0)}}}}})
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

// limit is the command's maxTimeMS, or zero.
func (r *request) limit() time.Duration {
	ms, _ := r.body.Lookup("maxTimeMS").AsInt64OK()
	return time.Duration(ms) * time.Millisecond
}

func failure(code int32, text string) bson.D {
	name := fmt.Sprint("Location", code)
	if code == 18 {
		name = "AuthenticationFailed"
	}
	return bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: code}, {Key: "errmsg", Value: text}, {Key: "codeName", Value: name}}
}

func (s *imitation) hello() bson.D {
	d := bson.D{
		{Key: "helloOk", Value: true}, {Key: "ismaster", Value: !s.secondary}, {Key: "isWritablePrimary", Value: !s.secondary}, {Key: "secondary", Value: s.secondary},
		{Key: "maxBsonObjectSize", Value: 16 << 20}, {Key: "maxMessageSizeBytes", Value: 48_000_000}, {Key: "maxWriteBatchSize", Value: 100_000},
		{Key: "localTime", Value: time.Now()},
		{Key: "minWireVersion", Value: 0}, {Key: "maxWireVersion", Value: 21}, {Key: "ok", Value: 1},
	}
	if !s.sessionless {
		d = append(d, bson.E{Key: "logicalSessionTimeoutMinutes", Value: 30})
	}
	if s.password != "" {
		d = append(d, bson.E{Key: "saslSupportedMechs", Value: bson.A{"SCRAM-SHA-256"}})
	}
	d = append(d, s.said...)
	if s.standalone {
		return d
	}
	return append(d,
		bson.E{Key: "setName", Value: "rs0"}, bson.E{Key: "setVersion", Value: 1}, bson.E{Key: "hosts", Value: bson.A{s.addr}},
		bson.E{Key: "primary", Value: s.addr}, bson.E{Key: "me", Value: s.addr})
}

// The imitation's commands. Each holds the command to what this package promises:
// write concern, read concern and so on.

func (s *imitation) command(ctx context.Context, name string, r *request) bson.D {
	switch name {
	case "hello", "isMaster", "ismaster":
		return s.hello()
	case "ping", "endSessions", "killCursors":
		return bson.D{{Key: "ok", Value: 1}}
	case "replSetGetConfig":
		if s.config == nil {
			return failure(13, "not authorized on admin to execute command { replSetGetConfig: 1 }")
		}
		return bson.D{{Key: "ok", Value: 1}, {Key: "config", Value: s.config}}
	case "create":
		return s.create(r)
	case "listCollections":
		return s.list(r)
	case "find":
		return s.find(ctx, r)
	case "insert":
		return s.once(name, r)
	case "findAndModify":
		return s.replicated(r, s.once(name, r))
	case "aggregate":
		return s.watch(r)
	case "getMore":
		return s.getMore(ctx, r)
	}
	s.t.Errorf("imitation: the command %s is unknown: %v", name, r.body)
	return failure(59, "no such command: "+name)
}

// once does a retryable write once, however often it is asked for.
func (s *imitation) once(name string, r *request) bson.D {
	key := ""
	if n, err := r.body.LookupErr("txnNumber"); err == nil {
		key = fmt.Sprint(r.body.Lookup("lsid"), n)
		if reply, done := s.replies[key]; done {
			return reply
		}
	}
	var reply bson.D
	if name == "insert" {
		reply = s.insert(r)
	} else {
		reply = s.update(r)
	}
	if key != "" {
		s.replies[key] = reply
	}
	return reply
}

// wants fails the test if a command lacks what it must have.
func (s *imitation) wants(r *request, value string, path ...string) {
	if v, err := r.body.LookupErr(path...); err != nil || v.String() != value {
		s.t.Errorf("imitation: %v: %v is %v, want %s", r.body, path, v, value)
	}
}

func (s *imitation) durable(r *request) {
	s.wants(r, `"majority"`, "writeConcern", "w")
	s.wants(r, `true`, "writeConcern", "j")
}

// replicated is the answer to a write, once a majority has it and all before it, or once a
// standalone's journal has. A mongod does not give the wait up when the client has gone, but when
// maxTimeMS is over.
func (s *imitation) replicated(r *request, answer bson.D) bson.D {
	n := len(s.events)
	s.waiting++
	done := s.await(s.ctx, r.limit(), func() bool { return s.common() >= n })
	s.waiting--
	if !done {
		answer = append(slices.Clone(answer), bson.E{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 50}, {Key: "codeName", Value: "MaxTimeMSExpired"}, {Key: "errmsg", Value: "operation exceeded time limit"}}})
	}
	return answer
}

func (s *imitation) find(ctx context.Context, r *request) bson.D {
	coll := r.body.Lookup("find").StringValue()
	if tailable, ok := r.body.Lookup("tailable").BooleanOK(); ok && tailable {
		batch := bson.A{}
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
	batch := bson.A{}
	if d := docs[coll][s.key(docs[coll], r.body.Lookup("filter", "_id").StringValue())]; d != nil {
		batch = append(batch, d)
	}
	return s.batch(coll, 0, "firstBatch", batch)
}

// key is the _id of the document that id finds, or id itself.
func (s *imitation) key(docs map[any]bson.Raw, id string) string {
	for other := range docs {
		if s.folds && strings.EqualFold(other.(string), id) {
			return other.(string)
		}
	}
	return id
}

// duplicate is the error of a write that a unique index refuses.
func duplicate(index, field string, value any) bson.D {
	text := fmt.Sprintf("E11000 duplicate key error collection: %s.%s index: %s dup key: { %s: ... }", database, collection, index, field)
	return append(failure(11000, text), bson.E{Key: "keyPattern", Value: bson.D{{Key: field, Value: 1}}}, bson.E{Key: "keyValue", Value: bson.D{{Key: field, Value: value}}})
}

func (s *imitation) insert(r *request) bson.D {
	coll := r.body.Lookup("insert").StringValue()
	doc := r.docs[0]
	if s.capped[coll] != nil {
		s.capped[coll] = append(s.capped[coll], doc)
		s.wake()
		return bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}}
	}
	s.t.Errorf("imitation: an insert into %s, which is not capped", coll)
	return failure(20, "no inserts")
}

// update is findAndModify with $set and $currentDate.
func (s *imitation) update(r *request) bson.D {
	if s.secondary {
		return failure(10107, "not master")
	}
	s.durable(r)
	s.wants(r, "true", "new")
	coll := r.body.Lookup("findAndModify").StringValue()
	id := r.body.Lookup("query", "_id").StringValue()
	asked := id
	id = s.key(s.docs[coll], id)
	was := s.docs[coll][id]
	if upsert, _ := r.body.Lookup("upsert").BooleanOK(); upsert && (was == nil || !was.Lookup("version").Equal(r.body.Lookup("query", "version"))) {
		return s.upsert(r, coll, asked)
	}
	if was == nil || !was.Lookup("version").Equal(r.body.Lookup("query", "version")) {
		return bson.D{{Key: "ok", Value: 1}, {Key: "value", Value: nil}}
	}
	changed := fields(r.body.Lookup("update", "$set").Document())
	changed["written"] = bson.NewDateTimeFromTime(time.Now())
	next := fields(was)
	for k, v := range changed {
		next[k] = v
	}
	now, _ := bson.Marshal(next)
	s.docs[coll][id] = now
	s.event(coll, bson.D{{Key: "operationType", Value: "update"}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
		{Key: "updateDescription", Value: bson.D{{Key: "updatedFields", Value: changed}}}})
	return bson.D{{Key: "ok", Value: 1}, {Key: "value", Value: bson.Raw(now)}}
}

// upsert inserts what findAndModify did not find: the query's fields, and then what is set.
func (s *imitation) upsert(r *request, coll, id string) bson.D {
	if s.docs[coll][s.key(s.docs[coll], id)] != nil {
		return duplicate("_id_", "_id", id)
	}
	for _, other := range s.docs[coll] { // an upsert of this package has none of the other fields: null
		if value := other.Lookup(s.unique); s.unique != "" && value.IsZero() {
			return duplicate(s.unique+"_1", s.unique, nil)
		}
	}
	next := fields(r.body.Lookup("query").Document())
	for k, v := range fields(r.body.Lookup("update", "$set").Document()) {
		next[k] = v
	}
	next["written"] = bson.NewDateTimeFromTime(time.Now())
	doc, _ := bson.Marshal(next)
	s.put(coll, id, doc)
	return bson.D{{Key: "ok", Value: 1}, {Key: "value", Value: bson.Raw(doc)}}
}

func fields(d bson.Raw) bson.M {
	m := bson.M{}
	elements, _ := d.Elements()
	for _, e := range elements {
		m[e.Key()] = e.Value()
	}
	return m
}

// put inserts or replaces a document, or with nil deletes it.
func (s *imitation) put(coll, id string, doc bson.Raw) {
	if s.docs[coll] == nil {
		s.docs[coll] = map[any]bson.Raw{}
	}
	kind := "insert"
	if s.docs[coll][id] != nil {
		kind = "replace"
	}
	key := bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}}
	if doc == nil {
		delete(s.docs[coll], id)
		s.event(coll, bson.D{{Key: "operationType", Value: "delete"}, key})
		return
	}
	s.docs[coll][id] = doc
	s.event(coll, bson.D{{Key: "operationType", Value: kind}, key, {Key: "fullDocument", Value: doc}})
}

// set is what an operator does by hand.
func (s *imitation) set(coll, id string, doc any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if doc == nil {
		s.put(coll, id, nil)
		return
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		s.t.Fatal(err)
	}
	s.put(coll, id, raw)
}

// touch sets one field by hand, of all that an update sets.
func (s *imitation) touch(coll, id, field string, value any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := fields(s.docs[coll][id])
	next[field] = value
	s.docs[coll][id], _ = bson.Marshal(next)
	s.event(coll, bson.D{{Key: "operationType", Value: "update"}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
		{Key: "updateDescription", Value: bson.D{{Key: "updatedFields", Value: bson.D{{Key: field, Value: value}}}}}})
}

// event adds to the oplog.
func (s *imitation) event(coll string, e bson.D) {
	e = append(e, bson.E{Key: "_id", Value: token(len(s.events) + 1)}, bson.E{Key: "ns", Value: bson.D{{Key: "coll", Value: coll}}})
	s.events = append(s.events, nil)
	s.events[len(s.events)-1] = append(e, bson.E{Key: "clusterTime", Value: s.now()})
	s.wake()
}

func (s *imitation) wake() {
	close(s.more)
	s.more = make(chan struct{})
}

// token is a resume token: how many events have been.
func token(n int) bson.D { return bson.D{{Key: "_data", Value: fmt.Sprintf("%08d", n)}} }

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
	coll := r.body.Lookup("aggregate").StringValue()
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
	coll := r.body.Lookup("collection").StringValue()
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
		raw, _ := bson.Marshal(s.events[c.next])
		at := bson.Raw(raw).Lookup("ns", "coll").StringValue() + "\x00" + bson.Raw(raw).Lookup("documentKey", "_id").StringValue()
		if at == c.coll {
			batch = append(batch, bson.Raw(raw))
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
	c := bson.D{{Key: "id", Value: id}, {Key: "ns", Value: "db." + coll}, {Key: name, Value: docs}}
	if k := s.cursors[id]; k != nil && !k.tail {
		c = append(c, bson.E{Key: "postBatchResumeToken", Value: token(k.next)})
	}
	return bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: c}}
}

// list is listCollections, of the names in the filter.
func (s *imitation) list(r *request) bson.D {
	names, _ := r.body.Lookup("filter", "name", "$in").Array().Values()
	batch := bson.A{}
	for _, n := range names {
		name := n.StringValue()
		if s.capped[name] != nil {
			batch = append(batch, bson.D{{Key: "name", Value: name}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{{Key: "capped", Value: true}, {Key: "size", Value: 4096}}}})
		} else if s.docs[name] != nil {
			batch = append(batch, bson.D{{Key: "name", Value: name}, {Key: "type", Value: "collection"}, {Key: "options", Value: bson.D{}}})
		}
	}
	return s.batch("$cmd.listCollections", 0, "firstBatch", batch)
}

func (s *imitation) create(r *request) bson.D {
	coll := r.body.Lookup("create").StringValue()
	if s.capped[coll] != nil || s.docs[coll] != nil {
		return failure(48, "Collection already exists. NS: db."+coll)
	}
	if capped, _ := r.body.Lookup("capped").BooleanOK(); !capped {
		s.t.Errorf("imitation: a collection that is not capped: %v", r.body)
	}
	s.capped[coll] = []bson.Raw{}
	return bson.D{{Key: "ok", Value: 1}}
}
