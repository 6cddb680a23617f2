package consul_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// reply is an answer that a test may change.
type reply struct {
	status int
	header http.Header
	body   string
}

// changed is a way to the imitation on which answers to reads and to writes are changed.
type changed struct {
	s           *imitation
	read, write func(*reply)
	asked       []*http.Request // with their bodies
}

// RoundTrip implements http.RoundTripper.
func (c *changed) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := r.Clone(r.Context())
	asked.Body, _ = r.GetBody()
	c.asked = append(c.asked, asked)
	w := httptest.NewRecorder()
	c.s.ServeHTTP(w, r)
	a := &reply{w.Code, w.Header(), w.Body.String()}
	if change := map[bool]func(*reply){true: c.write, false: c.read}[r.Method == http.MethodPut]; change != nil {
		change(a)
	}
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

func (c *changed) decider(opts *consul.Options) *consul.Decider {
	return consul.NewDecider(&http.Client{Transport: c}, "http://imitation.invalid", "elections/one", opts)
}

// says makes the answer this one.
func (a *reply) says(status int, body string) { a.status, a.body = status, body }

// written changes what a transaction says that it has written.
func written(change func(k *kv)) func(*reply) {
	return func(a *reply) {
		var said struct{ Results []map[string]*kv }
		if json.Unmarshal([]byte(a.body), &said) != nil || len(said.Results) != 1 {
			return
		}
		change(said.Results[0]["KV"])
		data, _ := json.Marshal(said)
		a.body = string(data)
	}
}

// An answer to a write that Consul would not give to it is neither a success nor a lost
// race.
func TestFalseAnswersToWrites(t *testing.T) {
	fixed := func(status int, body string) func(*reply) { return func(a *reply) { a.says(status, body) } }
	const stale = `failed to set key \"elections/one\", index is stale`
	errors := func(texts ...string) string {
		return `{"Results":null,"Errors":[{"OpIndex":0,"What":"` + strings.Join(texts, `"},{"OpIndex":1,"What":"`) + `"}]}`
	}
	for name, lie := range map[string]func(*reply){
		"empty":              fixed(200, ""),
		"true":               fixed(200, "true"),
		"false":              fixed(200, "false"),
		"null":               fixed(200, "null"),
		"an object":          fixed(200, "{}"),
		"an array":           fixed(200, "[]"),
		"no results":         fixed(200, `{"Results":[],"Errors":null}`),
		"an empty result":    fixed(200, `{"Results":[{}],"Errors":null}`),
		"a page":             fixed(200, "<html>true"),
		"a stale index":      fixed(200, errors(stale)),
		"created":            func(a *reply) { a.status = 201 },
		"more after it":      func(a *reply) { a.body += "{}" },
		"half of it":         func(a *reply) { a.body = a.body[:len(a.body)/2] },
		"two results":        func(a *reply) { a.body = strings.Replace(a.body, `[{"KV"`, `[{},{"KV"`, 1) },
		"and an error":       func(a *reply) { a.body = strings.Replace(a.body, `"Errors":null`, `"Errors":[{"What":"odd"}]`, 1) },
		"another key":        written(func(k *kv) { k.Key = "elections/two" }),
		"another write":      written(func(k *kv) { k.Flags++ }),
		"no flags":           written(func(k *kv) { k.Flags = 0 }),
		"no index":           written(func(k *kv) { k.ModifyIndex = 0 }),
		"the index before":   written(func(k *kv) { k.ModifyIndex-- }),
		"an earlier index":   written(func(k *kv) { k.ModifyIndex = 5 }),
		"another life":       written(func(k *kv) { k.CreateIndex += 3 }),
		"an earlier life":    written(func(k *kv) { k.CreateIndex-- }),
		"conflict, empty":    fixed(409, ""),
		"conflict, object":   fixed(409, "{}"),
		"conflict, page":     fixed(409, "<html>conflict"),
		"conflict, done":     func(a *reply) { a.status = 409 },
		"conflict, results":  fixed(409, `{"Results":[{}],"Errors":[{"OpIndex":0,"What":"`+stale+`"}]}`),
		"conflict, twice":    fixed(409, errors(stale, stale)),
		"conflict, other":    fixed(409, errors(strings.Replace(stale, "one", "two", 1))),
		"conflict, locked":   fixed(409, errors(`failed to lock key \"elections/one\" due to lock delay`)),
		"conflict, odd":      fixed(409, errors("something else")),
		"conflict, no words": fixed(409, errors("")),
		"too long":           func(a *reply) { a.body += strings.Repeat(" ", 1<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			c := &changed{s: newImitation()}
			d := c.decider(nil)
			c.write = lie
			feedtest.Passing(t, feedtest.WriteError(t, d, 1, nil), "elections/one")
			token := feedtest.Read(t, d).Token // it had happened
			feedtest.Passing(t, feedtest.WriteError(t, d, 2, token), "elections/one")
			c.write = nil
			feedtest.Reads(t, d, 2)
		})
	}
}

// The answer to another write, which something repeats, is not believed by one whose index
// it would fit.
func TestAnswersToOtherWrites(t *testing.T) {
	c := &changed{s: newImitation()}
	d := c.decider(nil)
	var said reply
	token := leaderelection.LeaderToken(nil)
	for number := range uint64(3) {
		c.write = func(a *reply) { said = *a }
		next := feedtest.Write(t, d, number+1, token)
		c.write = func(a *reply) { *a = said }
		feedtest.Passing(t, feedtest.WriteError(t, d, 9, token), "elections/one")
		token = next
	}
	feedtest.Reads(t, d, 3)
}

func TestFalseAnswersToReads(t *testing.T) {
	header := func(name, value string) func(*reply) { return func(a *reply) { a.header.Set(name, value) } }
	without := func(name string) func(*reply) { return func(a *reply) { a.header.Del(name) } }
	body := func(old, new string) func(*reply) {
		return func(a *reply) { a.body = strings.ReplaceAll(a.body, old, new) }
	}
	missing := func(a *reply) { a.says(404, "") } // with the headers of an answer
	for name, lie := range map[string]func(*reply){
		"empty":              func(a *reply) { a.body = "" },
		"true":               func(a *reply) { a.body = "true" },
		"null":               func(a *reply) { a.body = "null" },
		"none":               func(a *reply) { a.body = "[]" },
		"a null":             func(a *reply) { a.body = "[null]" },
		"twice":              func(a *reply) { a.body = "[" + strings.Trim(a.body, "[]") + "," + strings.Trim(a.body, "[]") + "]" },
		"a page":             func(a *reply) { a.body = "<html>welcome" },
		"another key":        body("elections/one", "elections/two"),
		"no base64":          body(`"Value":"`, `"Value":"*`),
		"no life":            body(`"CreateIndex":21`, `"CreateIndex":0`),
		"born later":         body(`"CreateIndex":21`, `"CreateIndex":99`),
		"an older one":       body(`"ModifyIndex":21`, `"ModifyIndex":20`),
		"no index":           without("X-Consul-Index"),
		"index 0":            header("X-Consul-Index", "0"),
		"a negative index":   header("X-Consul-Index", "-21"),
		"an index in words":  header("X-Consul-Index", "many"),
		"another index":      header("X-Consul-Index", "22"),
		"leader unsaid":      without("X-Consul-KnownLeader"),
		"no leader":          header("X-Consul-KnownLeader", "false"),
		"contact unsaid":     without("X-Consul-LastContact"),
		"stale":              header("X-Consul-LastContact", "1"),
		"no content":         func(a *reply) { a.status = 204 },
		"moved":              func(a *reply) { a.status = 301; a.header.Set("Location", "http://elsewhere.invalid/") },
		"too long":           func(a *reply) { a.body += strings.Repeat(" ", 1<<20) },
		"missing, a page":    func(a *reply) { missing(a); a.body = "<html>not found" },
		"missing, no index":  func(a *reply) { missing(a); a.header.Del("X-Consul-Index") },
		"missing, index 0":   func(a *reply) { missing(a); a.header.Set("X-Consul-Index", "0") },
		"missing, no leader": func(a *reply) { missing(a); a.header.Set("X-Consul-KnownLeader", "false") },
		"missing, stale":     func(a *reply) { missing(a); a.header.Set("X-Consul-LastContact", "99") },
	} {
		t.Run(name, func(t *testing.T) {
			c := &changed{s: newImitation()}
			d := c.decider(nil)
			feedtest.Write(t, d, 1, nil)
			c.read = lie
			e, err := d.ReadCurrent(t.Context())
			feedtest.Passing(t, err, "elections/one")
			if e != nil || c.asked[len(c.asked)-1].URL.Host != "imitation.invalid" {
				t.Errorf("%+v, of %v", e, c.asked[len(c.asked)-1].URL)
			}
			feedtest.Passing(t, feedtest.Next(t, feedtest.Follow(t, d)).Err, "elections/one")
		})
	}
}

// What Consul says no with is said for good only if no retry helps, with what to do.
func TestRefusals(t *testing.T) {
	for _, no := range []struct {
		status int
		text   string
		is     func(testing.TB, error, ...string)
		words  string
	}{
		{403, "Permission denied: token with AccessorID '00000000-0000-0000-0000-000000000002' lacks permission 'key:read' on \"elections/one\"", feedtest.Denied, `key "elections/one" { policy = "write" }`},
		{403, "rpc error making call: ACL not found", feedtest.Denied, "token"},
		{403, "Endpoint is blocked by agent configuration", feedtest.Permanent, "block_endpoints"},
		{403, "Access is restricted", feedtest.Permanent, "allow_write_http_from"},
		{403, "<html>Forbidden by the corporate firewall", feedtest.Passing, "firewall"},
		{401, "<html>who are you", feedtest.Passing, "401 Unauthorized"},
		{400, "Client sent an HTTP request to an HTTPS server.\n", feedtest.Permanent, "tls=true"},
		{400, `Invalid query parameter: "ns" - Namespaces are a Consul Enterprise feature`, feedtest.Permanent, "Namespace"},
		{413, "Request body(600000 bytes) too large, max size: 524288 bytes.", feedtest.Permanent, "kv_max_value_size"},
		{429, "Your IP is issuing too many concurrent connections, please rate limit your calls\n", feedtest.Passing, "http_max_conns_per_client"},
		{500, "No cluster leader", feedtest.Passing, "no leader just now"},
		{500, "rpc error making call: rpc error making call: node is not the leader", feedtest.Passing, "no leader just now"},
		{500, "rpc error making call: raft apply failed: leadership lost while committing log", feedtest.Passing, "no leader just now"},
		{500, "No path to datacenter", feedtest.Passing, "datacenter"},
		{500, "rpc error making call: EOF", feedtest.Passing, "rpc error making call: EOF"},
		{503, "rate limit exceeded for operation that can only be performed by the leader, try again later", feedtest.Passing, "rate limit"},
		{404, "Invalid URL path: not a recognized HTTP API endpoint\n", feedtest.Passing, "proxy"},
		{302, "", feedtest.Passing, "proxy"},
	} {
		c := &changed{s: newImitation()}
		c.read = func(a *reply) {
			a.says(no.status, no.text)
			a.header.Set("Retry-After", "7") // a pause that is asked for is handed on
		}
		c.write = c.read
		d := c.decider(nil)
		_, read := d.ReadCurrent(t.Context())
		_, wrote := d.WriteEntry(t.Context(), feedtest.State(1, nil))
		_, examined := d.Durability(t.Context())
		followed := feedtest.Next(t, feedtest.Follow(t, d)).Err
		for _, err := range []error{read, wrote, examined, followed} {
			no.is(t, err, "elections/one", no.words)
			feedtest.Pauses(t, err, 7*time.Second)
		}
	}
}

// A transaction that is rolled back for a lack of permission is no lost race.
func TestTransactionWithoutPermission(t *testing.T) {
	s := newImitation()
	s.restricted = true
	_, err := s.decider(nil).WriteEntry(t.Context(), feedtest.State(1, nil))
	feedtest.Denied(t, err, "key:write", `policy = "write"`)
}

// An index is never used again for as long as the servers live: what was deleted and made
// again is not taken for what was there.
func TestVersionsOfAnotherLife(t *testing.T) {
	s := newImitation()
	d := s.decider(nil)
	token := feedtest.Write(t, d, 2, feedtest.Write(t, d, 1, nil))
	lost := func(what string, token leaderelection.LeaderToken) {
		t.Helper()
		if err := feedtest.WriteError(t, d, 9, token); !errors.Is(err, leaderelection.ErrLostRace) {
			t.Errorf("%s: %v", what, err)
		}
	}
	restore := s.snapshot()
	later := feedtest.Write(t, d, 3, token)
	s.remove("elections/one")
	lost("over a key that is gone", later)
	feedtest.Reads(t, d, 0)
	anew := feedtest.Write(t, d, 10, feedtest.Read(t, d).Token)
	lost("over another key", later)
	lost("as if there were none", nil)
	restore(false)
	lost("over the key as it was", anew)
	lost("over the key as it was", later)
	feedtest.Write(t, d, 4, token) // which it is again, in the servers' view
}

// What is there and no record of ours is reported, and left alone.
func TestForeignKeys(t *testing.T) {
	for name, data := range feedtest.NoRecords() {
		t.Run(name, func(t *testing.T) {
			s := newImitation()
			s.set("elections/one", data)
			feedtest.Foreign(t, s.decider(nil), "elections/one")
			if left := s.keys["elections/one"]; string(left.Value) != data {
				t.Errorf("what is left is %q", left.Value)
			}
		})
	}
	s := newImitation()
	token := feedtest.Write(t, s.decider(nil), 1, nil)
	s.put(kv{Key: "elections/one", Value: s.keys["elections/one"].Value, Session: "5f1c", LockIndex: 1})
	feedtest.Permanent(t, feedtest.ReadError(t, s.decider(nil)), "session (5f1c)", "lock")
	feedtest.Lost(t, feedtest.WriteError(t, s.decider(nil), 2, token))
}

// The token goes with each request, as it is then, and nowhere else.
func TestToken(t *testing.T) {
	c := &changed{s: newImitation()}
	n := 0
	d := c.decider(&consul.Options{Token: func() (string, error) { n++; return fmt.Sprint("s3cret-", n), nil }})
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	for i, r := range c.asked {
		if got := r.Header["X-Consul-Token"]; len(got) != 1 || got[0] != fmt.Sprint("s3cret-", i+1) || strings.Contains(r.URL.String(), "s3cret") {
			t.Errorf("request %d, %s, has the tokens %q", i, r.URL, got)
		}
	}
	c.read = func(a *reply) { a.says(500, "you said: X-Consul-Token: s3cret-3") }
	_, err := d.ReadCurrent(t.Context())
	if feedtest.Passing(t, err, "you said"); strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	for _, bad := range []string{"two\nlines", "a space", "\x7f"} {
		d := c.decider(&consul.Options{Token: func() (string, error) { return bad, nil }})
		if feedtest.Refuses(t, d, "token"); len(c.asked) != 3 {
			t.Error("it was sent")
		}
	}
	c.read = nil
	one := c.decider(&consul.Options{Token: func() (string, error) { return "e", nil }})
	if e := feedtest.Read(t, one); e.ElectionNumber != 1 { // though the letter is in the answer
		t.Errorf("%+v", e)
	}
	gone := errors.New("the vault is sealed")
	_, err = c.decider(&consul.Options{Token: func() (string, error) { return "", gone }}).ReadCurrent(t.Context())
	if feedtest.Passing(t, err, "ACL token"); !errors.Is(err, gone) {
		t.Error(err)
	}
	c.asked = nil
	feedtest.Read(t, c.decider(nil))
	if got := c.asked[0].Header["X-Consul-Token"]; got != nil {
		t.Errorf("%q", got)
	}
}

// Datacenter, namespace and partition are said in each request, in the form that it wants;
// reads are consistent, and the key arrives as it is.
func TestRequests(t *testing.T) {
	const key = `a b/?#&+:@ü"'\=`
	c := &changed{s: newImitation()}
	d := consul.NewDecider(&http.Client{Transport: c}, "http://imitation.invalid/consul/", key,
		&consul.Options{Datacenter: "dc 2", Namespace: "team", Partition: "part"})
	_, err := d.ReadCurrent(t.Context()) // its path has a prefix, which the imitation does not know
	feedtest.Passing(t, err, "dc 2", "proxy")
	feedtest.Passing(t, feedtest.WriteError(t, d, 1, nil), "dc 2")
	read, write := c.asked[0], c.asked[1]
	if got := read.URL.RequestURI(); got != "/consul/v1/kv/a%20b/%3F%23&+:@%C3%BC%22%27%5C=?consistent=&dc=dc+2&ns=team&partition=part" {
		t.Error(got)
	}
	if got := write.URL.RequestURI(); got != "/consul/v1/txn?dc=dc+2" {
		t.Error(got)
	}
	var ops []map[string]map[string]any
	if err := json.NewDecoder(write.Body).Decode(&ops); err != nil || len(ops) != 1 {
		t.Fatal(ops, err)
	}
	kv := ops[0]["KV"]
	if kv["Verb"] != "cas" || kv["Key"] != key || kv["Namespace"] != "team" || kv["Partition"] != "part" || kv["Index"] != 0.0 || kv["Flags"] == 0.0 {
		t.Errorf("%v", kv)
	}
	s := newImitation()
	d = consul.NewDecider(&http.Client{Transport: s.transport()}, "http://imitation.invalid", key, nil)
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	feedtest.Reads(t, d, 1)
}

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

// do does something to it while it answers nobody.
func (s *imitation) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// change is that something has changed.
func (s *imitation) change() {
	s.index++
	close(s.changed)
	s.changed = make(chan struct{})
}

// set changes a key by hand.
func (s *imitation) set(key, value string) {
	s.do(func() { s.put(kv{Key: key, Value: []byte(value)}) })
}

func (s *imitation) put(k kv) kv {
	s.change()
	k.CreateIndex, k.ModifyIndex = cmp.Or(s.keys[k.Key].CreateIndex, s.index), s.index
	s.keys[k.Key] = k
	return k
}

// remove deletes a key by hand.
func (s *imitation) remove(key string) { s.do(func() { s.change(); delete(s.keys, key) }) }

// snapshot returns what restores it as it is now, as consul snapshot does: in this cluster,
// whose count goes on, or in a new one, whose count begins where that of the snapshot ended.
func (s *imitation) snapshot() (restore func(anew bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index, keys := s.index, maps.Clone(s.keys)
	return func(anew bool) {
		s.do(func() {
			if s.keys = keys; anew {
				s.index = index
			}
			s.change()
		})
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
		answer(w, http.StatusConflict, struct{ Results, Errors any }{nil, []any{map[string]any{"OpIndex": 0, "What": what}}})
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
		answer(w, http.StatusOK, struct{ Results, Errors any }{[]any{map[string]kv{"KV": k}}, nil})
	}
}

func TestImitation(t *testing.T) {
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		s := newImitation()
		t.Cleanup(func() { close(s.gone) })
		return func() leaderelection.RaceDecider { return s.decider(nil) }
	}, nil)
}
