package consul_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// imitation answers as a Consul agent does what this package asks, without sockets, so that
// it works in virtual time. TestImitation holds it to what the real one is held to, and
// TestSameAnswers to the real one's answers.
type imitation struct {
	mu      sync.Mutex
	index   uint64 // of raft
	keys    map[string]kv
	changed chan struct{} // closed and made again with each change
	reads   int           // that do not wait
	waits   int           // that do
	writes  int
	gone    chan struct{} // closed when nobody waits any more

	// What may be out of order.
	noLeader   bool // there is none, and reads in the default mode are the last one's
	impatient  bool // queries are answered at once
	stubborn   bool // queries are answered after their time only
	restricted bool // the token may not write
}

// kv is a key as Consul shows it.
type kv struct {
	LockIndex                uint64
	Key                      string
	Flags                    uint64
	Value                    []byte
	CreateIndex, ModifyIndex uint64
	Session                  string `json:",omitempty"`
}

func newImitation() *imitation {
	return &imitation{index: 20, keys: map[string]kv{}, changed: make(chan struct{}), gone: make(chan struct{})}
}

// transport reaches it.
func (s *imitation) transport() *httpfault.Transport { return &httpfault.Transport{Handler: s} }

// decider is an election on it.
func (s *imitation) decider(opts *consul.Options) *consul.Decider {
	return consul.NewDecider(&http.Client{Transport: s.transport()}, "http://imitation.invalid", "elections/one", opts)
}

// touch has something else change.
func (s *imitation) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change()
}

func (s *imitation) change() {
	s.index++
	close(s.changed)
	s.changed = make(chan struct{})
}

// set changes a key by hand.
func (s *imitation) set(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(kv{Key: key, Value: []byte(value)})
}

func (s *imitation) put(k kv) kv {
	s.change()
	k.CreateIndex, k.ModifyIndex = cmp.Or(s.keys[k.Key].CreateIndex, s.index), s.index
	s.keys[k.Key] = k
	return k
}

// remove deletes a key by hand.
func (s *imitation) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change()
	delete(s.keys, key)
}

// snapshot returns what restores it as it is now, as consul snapshot does: in this cluster,
// whose count goes on, or in a new one, whose count begins where that of the snapshot ended.
func (s *imitation) snapshot() (restore func(anew bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index, keys := s.index, map[string]kv{}
	for name, k := range s.keys {
		keys[name] = k
	}
	return func(anew bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.keys = keys; anew {
			s.index = index
		}
		s.change()
	}
}

// count is how many requests there were.
func (s *imitation) count() (reads, waits, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.waits, s.writes
}

// ServeHTTP implements http.Handler.
func (s *imitation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch key, isKey := strings.CutPrefix(r.URL.Path, "/v1/kv/"); {
	case isKey && r.Method == http.MethodGet:
		s.get(w, r, key)
	case r.URL.Path == "/v1/txn" && r.Method == http.MethodPut:
		s.txn(w, r)
	case r.URL.Path == "/v1/status/peers":
		answer(w, http.StatusOK, []string{"127.0.0.1:8300"})
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "Invalid URL path: not a recognized HTTP API endpoint\n")
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

func (s *imitation) get(w http.ResponseWriter, r *http.Request, key string) {
	q := r.URL.Query()
	after, _ := strconv.ParseUint(q.Get("index"), 10, 64)
	wait, _ := time.ParseDuration(q.Get("wait"))
	wait += rand.N(wait/16 + 1)
	over := time.NewTimer(wait)
	defer over.Stop()
	s.mu.Lock()
	if after == 0 {
		s.reads++
	} else {
		s.waits++
	}
	for waited := false; ; {
		index := s.keys[key].ModifyIndex
		if index == 0 { // of a key that is not there, the table's
			index = s.index
		}
		now, changed := waited || after == 0 || !s.stubborn && index > after || s.impatient, s.changed
		s.mu.Unlock()
		if now {
			break
		}
		select {
		case <-changed:
		case <-over.C:
			waited = true
		case <-s.gone:
			return
		}
		s.mu.Lock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.show(w, q.Has("consistent"), key)
}

func (s *imitation) show(w http.ResponseWriter, consistent bool, key string) {
	if s.noLeader && consistent {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "No cluster leader")
		return
	}
	k, found := s.keys[key]
	w.Header().Set("X-Consul-Index", strconv.FormatUint(cmp.Or(k.ModifyIndex, s.index), 10))
	w.Header().Set("X-Consul-KnownLeader", strconv.FormatBool(!s.noLeader))
	w.Header().Set("X-Consul-LastContact", map[bool]string{true: "730", false: "0"}[s.noLeader])
	if !found {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answer(w, http.StatusOK, []kv{k})
}

// outcome is that of a transaction.
type outcome struct {
	Results []map[string]kv
	Errors  []failure
}

type failure struct {
	OpIndex int
	What    string
}

func (s *imitation) txn(w http.ResponseWriter, r *http.Request) {
	var ops []struct {
		KV *struct {
			Verb, Key    string
			Value        []byte
			Flags, Index uint64
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&ops); err != nil || len(ops) != 1 || ops[0].KV == nil || ops[0].KV.Verb != "cas" {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, "Failed to parse body: %v", err)
		return
	}
	op := ops[0].KV
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	refuse := func(what string) {
		answer(w, http.StatusConflict, outcome{Errors: []failure{{0, what}}})
	}
	switch was, found := s.keys[op.Key]; {
	case s.noLeader:
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "No cluster leader")
	case s.restricted:
		refuse(fmt.Sprintf("Permission denied: token with AccessorID '7' lacks permission 'key:write' on %q", op.Key))
	case found != (op.Index > 0) || was.ModifyIndex != op.Index:
		refuse(fmt.Sprintf("failed to set key %q, index is stale", op.Key))
	default:
		k := s.put(kv{Key: op.Key, Value: op.Value, Flags: op.Flags, LockIndex: was.LockIndex, Session: was.Session})
		k.Value = nil
		answer(w, http.StatusOK, outcome{Results: []map[string]kv{{"KV": k}}})
	}
}

func TestImitation(t *testing.T) {
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		s := newImitation()
		t.Cleanup(func() { close(s.gone) })
		return func() leaderelection.RaceDecider { return s.decider(nil) }
	}, nil)
}

// polled is a Decider without its feed.
type polled struct{ d *consul.Decider }

func (p polled) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return p.d.ReadCurrent(ctx)
}

func (p polled) WriteEntry(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return p.d.WriteEntry(ctx, e)
}

func (p polled) String() string { return p.d.String() }
