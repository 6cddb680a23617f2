package rethinkdb_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"sync"
	"testing"

	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// imitation is a server that speaks RethinkDB's protocol to the real driver and
// understands the queries of this package, and no others. It keeps one table's rows
// in memory. What it cannot show is whether RethinkDB does the same.
type imitation struct {
	t    testing.TB
	addr string

	mu      sync.Mutex
	l       net.Listener
	conns   map[net.Conn]bool
	rows    map[string]any // by id; nil: no row
	feeds   map[*feed]bool
	queries map[string]int // by kind: get, replace, changes
	fault   func(kind string) *fault

	tls      *tls.Config // nil: plain TCP
	password string      // of the user admin

	tables     int            // how many there are of the one name
	noDatabase bool           // nor any table
	key        string         // the table's primary key
	singleAcks bool           // writes are acknowledged when the primary has them
	config     map[string]any // the table's; nil: the user may not see it

	cut *cut // not nil: this server is cut off from the others
}

// fault is what befalls a query.
type fault struct {
	refuse  *refusal // it is answered with an error, and does nothing
	cut     bool     // the connection is cut before it does anything
	cutLate bool     // the connection is cut when it has been done, before the answer
	hang    bool     // it is done, and never answered
}

// refusal is an error as RethinkDB answers it.
type refusal struct {
	kind p.Response_ErrorType
	text string
}

// feed is an open changefeed.
type feed struct {
	conn    *peer
	token   uint64
	id      string
	waiting []any // messages that no CONTINUE has asked for yet
	asked   bool  // a CONTINUE waits
}

// peer is a connection.
type peer struct {
	net.Conn
	mu sync.Mutex
}

func imitate(t testing.TB) *imitation { return imitateTLS(t, nil) }

// imitateTLS is one that speaks TLS, if cfg is not nil.
func imitateTLS(t testing.TB, cfg *tls.Config) *imitation {
	t.Helper()
	s := &imitation{t: t, tls: cfg, rows: map[string]any{}, feeds: map[*feed]bool{}, queries: map[string]int{}, tables: 1, key: "id"}
	s.start(t, fmt.Sprintf("127.0.0.1:%d", stores.FreePort(t)))
	t.Cleanup(s.stop)
	return s
}

// start listens, on the address it had if it was stopped.
func (s *imitation) start(t testing.TB, addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if s.tls != nil {
		l = tls.NewListener(l, s.tls)
	}
	s.mu.Lock()
	s.l, s.addr, s.conns = l, l.Addr().String(), map[net.Conn]bool{}
	s.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			go s.serve(&peer{Conn: c})
		}
	}()
}

// stop cuts all connections, and listens no more. Rows stay.
func (s *imitation) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.l.Close()
	for c := range s.conns {
		c.Close()
	}
	clear(s.feeds)
	if s.cut != nil {
		s.cut.waiting = nil
	}
}

// inject makes f say what befalls each query from now on.
func (s *imitation) inject(f func(kind string) *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// count is how many queries of a kind there were.
func (s *imitation) count(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries[kind]
}

// set puts a row in the place of what is there; nil removes it.
func (s *imitation) set(id string, row any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(id, row)
}

func (s *imitation) serve(c *peer) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.DeleteFunc(s.feeds, func(f *feed, _ bool) bool { return f.conn == c })
		delete(s.conns, c.Conn)
		c.Close()
	}()
	r := bufio.NewReader(c)
	if !s.handshake(c, r) {
		return
	}
	for {
		var head [12]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.LittleEndian.Uint32(head[8:]))
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		var q []json.RawMessage
		if err := json.Unmarshal(body, &q); err != nil || len(q) == 0 {
			s.t.Errorf("imitation: query %s: %v", body, err)
			return
		}
		if !s.handle(c, binary.LittleEndian.Uint64(head[:]), q) {
			return
		}
	}
}

// handle does one query, and reports whether the connection goes on.
func (s *imitation) handle(c *peer, token uint64, q []json.RawMessage) bool {
	var kind p.Query_QueryType
	_ = json.Unmarshal(q[0], &kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case p.Query_SERVER_INFO:
		c.answer(token, p.Response_SERVER_INFO, map[string]any{"id": "imitation", "name": "imitation"})
	case p.Query_NOREPLY_WAIT:
		c.answer(token, p.Response_WAIT_COMPLETE)
	case p.Query_CONTINUE:
		for f := range s.feeds {
			if f.conn == c && f.token == token {
				f.asked = true
				f.deliver()
			}
		}
	case p.Query_STOP:
		for f := range s.feeds {
			if f.conn == c && f.token == token {
				delete(s.feeds, f)
				if f.asked {
					c.answer(token, p.Response_SUCCESS_SEQUENCE)
				}
			}
		}
		c.answer(token, p.Response_SUCCESS_SEQUENCE)
	case p.Query_START:
		return s.run(c, token, q[1])
	default:
		s.t.Errorf("imitation: a query of type %v", kind)
	}
	return true
}

// run does a query that begins.
func (s *imitation) run(c *peer, token uint64, raw json.RawMessage) bool {
	var term any
	_ = json.Unmarshal(raw, &term)
	v := s.eval(term, nil)
	if _, is := v.(configuring); is {
		if s.config == nil {
			c.refuse(token, &refusal{p.Response_PERMISSION_ERROR, "User `x` does not have the required `config` permission."})
		} else {
			c.answer(token, p.Response_SUCCESS_ATOM, s.config)
		}
		return true
	}
	kind := "get"
	switch v := v.(type) {
	case replacing:
		kind = "replace"
		_ = v
	case changing:
		kind = "changes"
	}
	s.queries[kind]++
	var f *fault
	if s.fault != nil {
		f = s.fault(kind)
	}
	if f == nil {
		f = &fault{}
	}
	switch {
	case f.cut:
		return false
	case f.refuse != nil:
		c.refuse(token, f.refuse)
		return true
	case s.noTable() != nil:
		c.refuse(token, s.noTable())
		return true
	}
	switch v := v.(type) {
	case changing:
		open := &feed{conn: c, token: token, id: v.id, waiting: []any{map[string]any{"new_val": s.rows[v.id]}}, asked: true}
		s.feeds[open] = true
		open.deliver()
		return true
	case replacing:
		result, failed := s.replace(v)
		switch {
		case f.cutLate:
			return false
		case f.hang:
		case failed != nil:
			c.refuse(token, failed)
		case s.singleAcks:
			c.answer(token, p.Response_SUCCESS_ATOM, result)
		default:
			s.whenCommitted(c, token, "The write may or may not have been performed.", func() { c.answer(token, p.Response_SUCCESS_ATOM, result) })
		}
		return true
	case rowRef:
		if f.cutLate {
			return false
		}
		if !f.hang {
			row := s.rows[v.id]
			s.whenCommitted(c, token, "The read could not be guaranteed as committed.", func() { c.answer(token, p.Response_SUCCESS_ATOM, row) })
		}
		return true
	}
	s.t.Errorf("imitation: the query %s is not one of this package's", raw)
	return false
}

func (s *imitation) put(id string, row any) {
	was := s.rows[id]
	s.rows[id] = row
	for f := range s.feeds {
		if f.id == id {
			f.waiting = append(f.waiting, map[string]any{"old_val": was, "new_val": row})
			f.deliver()
		}
	}
}

// abort ends all changefeeds with an error, as where a replica goes away.
func (s *imitation) abort(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.feeds {
		f.conn.refuse(f.token, &refusal{p.Response_OP_FAILED, text})
		delete(s.feeds, f)
	}
}

// deliver answers a CONTINUE that waits, when there is something to tell.
func (f *feed) deliver() {
	if !f.asked || len(f.waiting) == 0 {
		return
	}
	f.conn.send(f.token, map[string]any{"t": p.Response_SUCCESS_PARTIAL, "r": f.waiting, "n": []any{p.Response_ATOM_FEED}})
	f.waiting, f.asked = nil, false
}

func (c *peer) answer(token uint64, kind p.Response_ResponseType, results ...any) {
	if results == nil {
		results = []any{}
	}
	c.send(token, map[string]any{"t": kind, "r": results})
}

func (c *peer) refuse(token uint64, r *refusal) {
	c.send(token, map[string]any{"t": p.Response_RUNTIME_ERROR, "e": r.kind, "r": []any{r.text}, "b": []any{}})
}

func (c *peer) send(token uint64, response any) {
	body, err := json.Marshal(response)
	if err != nil {
		panic(fmt.Sprintf("imitation: %v", err))
	}
	head := binary.LittleEndian.AppendUint64(nil, token)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(body)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.Write(append(head, body...)); err != nil && !errors.Is(err, net.ErrClosed) {
		c.Close()
	}
}
