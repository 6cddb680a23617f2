package rethinkdb_test

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/xdg-go/scram"
	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"

	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// imitation is a server behind a relay. It speaks RethinkDB's protocol to the real driver and
// understands the queries of this package, and no others. It keeps one table's rows
// in memory. What it cannot show is whether RethinkDB does the same.
type imitation struct {
	*stores.Relay
	t testing.TB

	mu      sync.Mutex
	rows    map[string]any // by id; nil: no row
	feeds   map[*feed]bool
	queries map[string]int // by kind: get, replace, changes
	fault   func(kind string) *fault

	password   string         // of the user admin
	key        string         // the table's primary key
	singleAcks bool           // writes are acknowledged when the primary has them
	config     map[string]any // the table's; nil: the user may not see it

	cut *cut // not nil: this server is cut off from the others
}

// fault is what befalls a query.
type fault struct {
	refuse  *refusal // it is answered with an error, and does nothing
	lie     any      // this is the answer, and it does nothing
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

// imitated is an election on a server of its own.
func imitated(t testing.TB) (*imitation, *rethinkdb.Decider) {
	t.Helper()
	s := imitate(t)
	return s, web(t, s.Addr)
}

// imitateTLS is one that speaks TLS, if cfg is not nil.
func imitateTLS(t testing.TB, cfg *tls.Config) *imitation {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &imitation{Relay: stores.NewRelay(t, l.Addr().String()), t: t, rows: map[string]any{}, feeds: map[*feed]bool{}, queries: map[string]int{}, key: "id"}
	if cfg != nil {
		l = tls.NewListener(l, cfg)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(&peer{Conn: c})
		}
	}()
	return s
}

// Stop and Start are those of a storetest.Server. Rows stay.
func (s *imitation) Stop()            { s.Refuse() }
func (s *imitation) Start(testing.TB) { s.Heal() }

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
	switch v.(type) {
	case replacing:
		kind = "replace"
	case changing:
		kind = "changes"
	}
	s.queries[kind]++
	f := &fault{}
	if s.fault != nil {
		f = cmp.Or(s.fault(kind), f)
	}
	switch {
	case f.refuse != nil:
		c.refuse(token, f.refuse)
		return true
	case f.lie != nil:
		c.answer(token, p.Response_SUCCESS_ATOM, f.lie)
		return true
	}
	var answer any
	lost := "The read could not be guaranteed as committed."
	switch v := v.(type) {
	case changing:
		open := &feed{conn: c, token: token, id: v.id, waiting: []any{map[string]any{"new_val": s.rows[v.id]}}, asked: true}
		s.feeds[open] = true
		open.deliver()
		return true
	case replacing:
		answer, lost = s.replace(v), "The write may or may not have been performed."
	case rowRef:
		if answer = s.rows[v.id]; v.mode != "majority" {
			s.t.Errorf("imitation: a read in the mode %v", v.mode)
		}
	default:
		s.t.Errorf("imitation: the query %s is not one of this package's", raw)
		return false
	}
	switch {
	case f.cutLate:
		return false
	case f.hang:
	case s.cut == nil, kind == "replace" && s.singleAcks:
		c.answer(token, p.Response_SUCCESS_ATOM, answer)
	default: // when the majority has what the answer tells of; a changefeed was told before
		s.cut.waiting = append(s.cut.waiting, waiting{c, token, lost, answer})
	}
	return true
}

func (s *imitation) put(id string, row any) {
	was := s.rows[id]
	s.rows[id] = row
	s.tell(id, map[string]any{"old_val": was, "new_val": row})
}

// tell sends a message to the changefeeds of a row.
func (s *imitation) tell(id string, message any) {
	for f := range s.feeds {
		if f.id == id {
			f.waiting = append(f.waiting, message)
			f.deliver()
		}
	}
}

// end ends all changefeeds, with an error as when a replica goes away, or without.
func (s *imitation) end(r *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.feeds {
		if r != nil {
			f.conn.refuse(f.token, r)
		} else {
			f.conn.answer(f.token, p.Response_SUCCESS_SEQUENCE)
		}
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

// handshake is the server's side of the login of protocol 1.0, SCRAM-SHA-256, and says
// whether the client is in.
func (s *imitation) handshake(c io.Writer, r *bufio.Reader) bool {
	var magic [4]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return false
	}
	if magic[0] == 22 { // a TLS ClientHello
		_, _ = io.WriteString(c, "ERROR: Received an unsupported protocol version. This port is for RethinkDB queries.\n")
		return false
	}
	if v := binary.LittleEndian.Uint32(magic[:]); v != uint32(p.VersionDummy_V1_0) {
		s.t.Errorf("imitation: the protocol %x", v)
		return false
	}
	login, err := s.conversation()
	if err != nil {
		s.t.Errorf("imitation: %v", err)
		return false
	}
	send(c, map[string]any{"success": true, "min_protocol_version": 0, "max_protocol_version": 0, "server_version": "2.4.4"})
	for range 2 { // a challenge, and a proof
		var said struct{ Authentication string }
		if !receive(r, &said) {
			return false
		}
		answer, err := login.Step(said.Authentication)
		if err != nil {
			send(c, map[string]any{"success": false, "error": "Wrong password", "error_code": 12})
			return false
		}
		send(c, map[string]any{"success": true, "authentication": answer})
	}
	return true
}

// conversation is the server's side of one login.
func (s *imitation) conversation() (*scram.ServerConversation, error) {
	const user = "admin"
	client, err := scram.SHA256.NewClient(user, s.password, "")
	if err != nil {
		return nil, err
	}
	server, err := scram.SHA256.NewServer(func(name string) (scram.StoredCredentials, error) {
		if name != user {
			return scram.StoredCredentials{}, errors.New("there is no such user")
		}
		return client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: "salt", Iters: 4096})
	})
	if err != nil {
		return nil, err
	}
	return server.NewConversation(), nil
}

func receive(r *bufio.Reader, into any) bool {
	b, err := r.ReadBytes(0)
	return err == nil && json.Unmarshal(b[:len(b)-1], into) == nil
}

func send(c io.Writer, message map[string]any) {
	b, _ := json.Marshal(message)
	_, _ = c.Write(append(b, 0))
}

// The values of terms that are no data.
type (
	rowRef struct {
		id   string
		mode any // of reads
	}
	changing  struct{ id string }
	replacing struct {
		id string
		by []any // a FUNC
	}
	missing     struct{} // what a field is that is not there
	configuring struct{}
)

// eval computes a term. Vars are the arguments of the function around it.
func (s *imitation) eval(term any, vars map[float64]any) any {
	if object, is := term.(map[string]any); is {
		computed := map[string]any{}
		for k, v := range object {
			computed[k] = s.eval(v, vars)
		}
		return computed
	}
	list, is := term.([]any)
	if !is {
		return term
	}
	kind := p.Term_TermType(list[0].(float64))
	var args []any
	if len(list) > 1 {
		args, _ = list[1].([]any)
	}
	arg := func(i int) any { return s.eval(args[i], vars) }
	switch kind {
	case p.Term_TABLE: // there is one
		return option(list, "read_mode")
	case p.Term_GET:
		return rowRef{arg(1).(string), arg(0)}
	case p.Term_CHANGES:
		s.wants(list, "include_initial", true)
		return changing{arg(0).(rowRef).id}
	case p.Term_REPLACE:
		s.wants(list, "durability", "hard")
		s.wants(list, "return_changes", "always")
		return replacing{arg(0).(rowRef).id, args[1].([]any)}
	case p.Term_VAR:
		return vars[args[0].(float64)]
	case p.Term_BRANCH:
		if arg(0) == true {
			return arg(1)
		}
		return arg(2)
	case p.Term_EQ:
		return reflect.DeepEqual(arg(0), arg(1))
	case p.Term_NE:
		return !reflect.DeepEqual(arg(0), arg(1))
	case p.Term_AND:
		return arg(0) == true && arg(1) == true
	case p.Term_GET_FIELD, p.Term_BRACKET:
		object, _ := arg(0).(map[string]any)
		if v, there := object[arg(1).(string)]; there {
			return v
		}
		return missing{}
	case p.Term_DEFAULT:
		if v := arg(0); v != (missing{}) {
			return v
		}
		return arg(1)
	case p.Term_MERGE:
		merged := maps.Clone(arg(0).(map[string]any))
		maps.Copy(merged, arg(1).(map[string]any))
		return merged
	case p.Term_CONFIG:
		return configuring{}
	case p.Term_NOW:
		return map[string]any{"$reql_type$": "TIME", "epoch_time": float64(time.Now().UnixMilli()) / 1000, "timezone": "+00:00"}
	}
	s.t.Errorf("imitation: the term %v (%v) is unknown", kind, list)
	return missing{}
}

// option is an option of a term.
func option(list []any, name string) any {
	if len(list) < 3 {
		return nil
	}
	return list[2].(map[string]any)[name]
}

// wants fails the test if a term lacks an option.
func (s *imitation) wants(list []any, name string, value any) {
	if option(list, name) != value {
		s.t.Errorf("imitation: the term %v lacks %s: %v", list, name, value)
	}
}

// replace is RethinkDB's replace of one row, with return_changes "always".
func (s *imitation) replace(v replacing) map[string]any {
	fargs := v.by[1].([]any)
	name := fargs[0].([]any)[1].([]any)[0].(float64)
	was := s.rows[v.id]
	next := s.eval(fargs[1], map[float64]any{name: was})
	if row, is := next.(map[string]any); is && row[s.key] != v.id {
		said := "Inserted object must have primary key `" + s.key + "`:\n{}"
		if row[s.key] != nil {
			said = "Primary key `" + s.key + "` cannot be changed (null -> {})"
		}
		return map[string]any{"errors": 1, "first_error": said, "changes": []any{}}
	}
	did := "replaced"
	switch {
	case was == nil && next == nil:
		did = "skipped"
	case was == nil:
		did = "inserted"
	case reflect.DeepEqual(was, next):
		did = "unchanged"
	}
	if !reflect.DeepEqual(was, next) {
		s.put(v.id, next)
	}
	return map[string]any{did: 1, "changes": []any{map[string]any{"old_val": was, "new_val": next}}}
}

// What the imitation does as a cluster of RethinkDB 2.4.4 was seen to do.

// cut is a primary that has lost the majority of the replicas, and does not know yet. It
// takes writes and tells changefeeds of them, but neither writes nor reads in the mode
// majority are answered.
type cut struct {
	committed map[string]any
	waiting   []waiting
}

// waiting is a query without an answer.
type waiting struct {
	conn   *peer
	token  uint64
	lost   string // what it is told when the primary has lost the others
	answer any
}

// cutOff cuts the server off from the others. A write is so stalled even while the
// primary and the Raft leader differ, and then goes on: see rejoin.
func (s *imitation) cutOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = &cut{committed: maps.Clone(s.rows)}
}

// rejoin is when it has the others again, and they take what was written meanwhile.
func (s *imitation) rejoin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.cut
	s.cut = nil
	for _, w := range was.waiting {
		w.conn.answer(w.token, p.Response_SUCCESS_ATOM, w.answer)
	}
}

// undo is when the others have gone on without it: what was written meanwhile is undone,
// of which changefeeds are not told.
func (s *imitation) undo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.cut
	s.cut, s.rows = nil, was.committed
	for _, w := range was.waiting {
		w.conn.refuse(w.token, &refusal{p.Response_OP_INDETERMINATE, "The primary replica lost contact with the secondary replicas. " + w.lost})
	}
}
