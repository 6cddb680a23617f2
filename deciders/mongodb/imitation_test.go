package mongodb_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

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
