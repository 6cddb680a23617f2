package consul_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/consul"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

func TestMain(m *testing.M) {
	proctest.Main(consul.Open)
	goleak.VerifyTestMain(m)
}

// co is Consul, for the tests that all stores have.
var co = storetest.Store[*consul.Decider]{
	Open: consul.Open,
	Start: func(t testing.TB) (string, storetest.Server) {
		s := stores.Consul(t, "")
		return s.Address, s
	},
	Address: "consul://$addr/elections/$election",
}

func TestConformance(t *testing.T) {
	decidertest.Run(t, co.Elections(stores.Consul(t, "").Address), nil)
}

func TestProcesses(t *testing.T) { co.Processes(t) }
func TestFaults(t *testing.T)    { co.Faults(t) }
func TestNews(t *testing.T)      { co.News(t, nil) }

func TestHandover(t *testing.T) {
	feedtest.Handover(t, co.Elections(stores.Consul(t, "").Address))
}

// The imitation answers as the real server does, but for its indexes.
func TestSameAnswers(t *testing.T) {
	server, s := stores.Consul(t, ""), newImitation()
	tr := new(http.Transport)
	defer tr.CloseIdleConnections()
	var first [2]uint64
	cas := func(index uint64, value string) string {
		return fmt.Sprintf(`[{"KV":{"Verb":"cas","Key":"elections/é \"1","Value":%q,"Flags":9007199254740991,"Index":%d}}]`, value, index)
	}
	const key, txn = "/v1/kv/elections/%C3%A9%20%221", "/v1/txn"
	for _, ask := range []struct{ method, path, body string }{
		{"GET", key + "?consistent", ""},
		{"PUT", txn, "=0"},
		{"PUT", txn, "=0"},
		{"GET", key + "?consistent", ""},
		{"GET", key + "?index=1&wait=50s", ""},
		{"PUT", txn, "=first"},
		{"PUT", txn, "=first"},
		{"GET", key, ""},
		{"GET", "/v1/nothing", ""},
	} {
		var said [2]string
		for i, way := range []http.RoundTripper{tr, s.transport()} {
			body := ask.body
			switch body {
			case "=0":
				body = cas(0, "aGVsbG8=")
			case "=first":
				body = cas(first[i], "d29ybGQ=")
			}
			r, err := http.NewRequestWithContext(t.Context(), ask.method, "http://"+server.Address+ask.path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			a, err := way.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(a.Body)
			_ = a.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			_, index, found := strings.Cut(string(data), `"ModifyIndex":`)
			if found && first[i] == 0 {
				_, _ = fmt.Sscan(strings.TrimRight(index, "}]"), &first[i])
			}
			h := a.Header
			said[i] = fmt.Sprint(a.StatusCode, h.Get("X-Consul-Index") != "", h["X-Consul-Knownleader"], h["X-Consul-Lastcontact"], h["Content-Type"], " ")
			for _, part := range strings.Split(string(data), ",") {
				if name, value, _ := strings.Cut(part, ":"); strings.HasSuffix(name, `Index"`) && name != `"LockIndex"` {
					part = fmt.Sprint(name, ": ", value != "0")
				}
				said[i] += part
			}
		}
		if said[0] != said[1] {
			t.Errorf("%s %s: Consul answers\n%s, the imitation\n%s", ask.method, ask.path, said[0], said[1])
		}
	}
}

// Keys that are unlike words arrive as they are, by reads and writes.
func TestOddKeys(t *testing.T) {
	addr := "http://" + stores.Consul(t, "").Address
	for _, key := range []string{"e", "a/b/c", `a b/?#&+:@ü"'\=`, "日本/~!*();$,[]", "...", "a/.b./c", strings.Repeat("é", 500)} {
		tr := new(http.Transport)
		d := consul.NewDecider(&http.Client{Transport: tr}, addr, key, nil)
		token := feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
		if e := feedtest.Read(t, d); e.ElectionNumber != 1 || e.Token != token {
			t.Errorf("%q: %+v", key, e)
		}
		tr.CloseIdleConnections()
	}
}

// A session's lock on the key, and a record that is too long for the agent's limits, are
// told for good.
func TestServersOwnRefusals(t *testing.T) {
	server := stores.Consul(t, `{"limits":{"kv_max_value_size":2000,"txn_max_req_len":2000}}`)
	d := co.Opened(t, "consul://"+server.Address+"/e")
	e := feedtest.State(1, nil)
	e.ConnectionParams = make([]byte, 2000)
	_, err := d.WriteEntry(t.Context(), e)
	feedtest.Permanent(t, err, "413", "kv_max_value_size")
	token := feedtest.Write(t, d, 1, nil)
	_, id, _ := strings.Cut(server.Ask(t, "PUT", "/v1/session/create", "", `{"Behavior":"delete"}`), `"ID":`)
	id = strings.Trim(id, " \"}\n")
	record := server.Ask(t, "GET", "/v1/kv/e?raw", "", "")
	if got := server.Ask(t, "PUT", "/v1/kv/e?acquire="+id, "", record); !strings.Contains(got, "true") {
		t.Fatal(got)
	}
	feedtest.Permanent(t, feedtest.ReadError(t, d), id, "lock")
	feedtest.Lost(t, feedtest.WriteError(t, d, 2, token))
	feedtest.Permanent(t, feedtest.ReadError(t, co.Opened(t, "consul://"+server.Address+"/e?namespace=x")), "Namespace")
	feedtest.Passing(t, feedtest.ReadError(t, co.Opened(t, "consul://"+server.Address+"/e?datacenter=elsewhere")), "elsewhere", "is its name right?")
}

// Who may do what, by the rules of the token.
func TestPermissions(t *testing.T) {
	const root, candidate, observer, other = "11111111-0000-0000-0000-000000000000", "22222222-0000-0000-0000-000000000000",
		"33333333-0000-0000-0000-000000000000", "44444444-0000-0000-0000-000000000000"
	server := stores.Consul(t, `{"acl":{"enabled":true,"default_policy":"deny","tokens":{"initial_management":"`+root+`"}}}`)
	for token, rule := range map[string]string{candidate: `key "e" { policy = "write" }`, observer: `key "e" { policy = "read" }`, other: `key "f" { policy = "write" }`} {
		server.Ask(t, "PUT", "/v1/acl/policy", root, fmt.Sprintf(`{"Name":"p%s","Rules":%q}`, token, rule))
		server.Ask(t, "PUT", "/v1/acl/token", root, fmt.Sprintf(`{"SecretID":%q,"Policies":[{"Name":"p%s"}]}`, token, token))
	}
	as := func(token string) *consul.Decider { return co.Opened(t, "consul://:"+token+"@"+server.Address+"/e") }
	d := as(candidate)
	token := feedtest.Write(t, d, 2, feedtest.Write(t, d, 1, feedtest.Read(t, d).Token))
	feedtest.Number(t, feedtest.Follow(t, d), 2)
	if w, err := d.Durability(t.Context()); err != nil || len(w) != 1 {
		t.Error(w, err)
	}
	watching := as(observer)
	feedtest.Number(t, feedtest.Follow(t, watching), 2)
	feedtest.Permanent(t, feedtest.WriteError(t, watching, 3, token), "key:write", `key "e" { policy = "write" }`)
	for who, d := range map[string]*consul.Decider{"of another key": as(other), "unknown": as("55555555-0000-0000-0000-000000000000"), "none": co.Opened(t, "consul://"+server.Address+"/e")} {
		feedtest.Permanent(t, feedtest.ReadError(t, d), "token", `policy = "write"`)
		_, err := d.WriteEntry(t.Context(), feedtest.State(3, token))
		feedtest.Permanent(t, err, `policy = "write"`)
		if errors.Is(err, leaderelection.ErrLostRace) || strings.Contains(err.Error(), other) {
			t.Errorf("%s: %v", who, err)
		}
	}
	feedtest.Write(t, d, 3, token)
}

// TLS that checks the agent's certificate, with one of the client's own.
func TestTLS(t *testing.T) {
	addr := stores.Consul(t, "").Address
	a, other := feedtest.NewAuthority(t, "server", "candidate"), feedtest.NewAuthority(t, "candidate")
	_, port, _ := strings.Cut(serveTLS(t, a, addr).Listener.Addr().String(), ":")
	at := func(host string, ca *feedtest.Authority) *consul.Decider {
		return co.Opened(t, "consul://"+host+":"+port+"/e?"+storetest.TLS(ca, "candidate"))
	}
	d := at("127.0.0.1", a)
	feedtest.Write(t, d, 1, nil)
	feedtest.Number(t, feedtest.Follow(t, at("localhost", a)), 1)
	feedtest.Refuses(t, at("127.0.0.1", other), "certificate", "tls_ca")
	feedtest.Refuses(t, co.Opened(t, "consul://127.0.0.1:"+port+"/e?tls=true&"+storetest.TLS(a, "")), "tls_cert")
	feedtest.Refuses(t, co.Opened(t, "consul://127.0.0.1:"+port+"/e"), "tls=true")
	feedtest.Refuses(t, co.Opened(t, "consul://"+addr+"/e?tls=true"), "does not speak TLS")
}

func TestRenewedCertificates(t *testing.T) {
	a := feedtest.NewAuthority(t, "server", "candidate")
	server := serveTLS(t, a, stores.Consul(t, "").Address)
	d := co.Opened(t, "consul://"+server.Listener.Addr().String()+"/e?"+storetest.TLS(a, "candidate"))
	storetest.Renewed(t, d, a, server.CloseClientConnections)
}

// A snapshot that is restored in place sets the record back. What is known of later
// versions is refused, and a feed tells of the record as it is.
func TestSnapshot(t *testing.T) {
	server := stores.Consul(t, "")
	d := co.Opened(t, "consul://"+server.Address+"/e?feed_wait=1s")
	token := feedtest.Write(t, d, 1, nil)
	snapshot := server.Ask(t, "GET", "/v1/snapshot", "", "")
	later := feedtest.Write(t, d, 3, feedtest.Write(t, d, 2, token))
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 3)
	server.Ask(t, "PUT", "/v1/snapshot", "", snapshot)
	feedtest.Number(t, feed, 1)
	feedtest.Lost(t, feedtest.WriteError(t, d, 4, later))
	next := feedtest.Write(t, d, 5, feedtest.Read(t, d).Token)
	feedtest.Number(t, feed, 5)
	feedtest.Lost(t, feedtest.WriteError(t, d, 6, later))
	feedtest.Write(t, d, 6, next)
}

// An even number of servers, or one, is warned of.
func TestDurability(t *testing.T) {
	c := &changed{s: newImitation()}
	feedtest.Examines(t, c.decider(nil), "one server", "run three")
	for peers, words := range map[string][]string{`["a","b","c","d"]`: {"4 servers", "loss of 1,", "no more than 3", "3 or 5"}, `["a","b","c"]`: nil} {
		c.read = func(a *reply) { a.says(200, peers) }
		feedtest.Examines(t, c.decider(nil), words...)
	}
	for _, body := range []string{"", "[]", "null", "{}", "<html>"} {
		c.read = func(a *reply) { a.says(200, body) }
		_, err := c.decider(nil).Durability(t.Context())
		feedtest.Passing(t, err, "examining the servers of", "elections/one")
	}
	_, err := consul.NewDecider(nil, "http://127.0.0.1:1", "/", nil).Durability(t.Context())
	feedtest.Permanent(t, err, "slash")
}

func TestServers(t *testing.T) {
	var servers []storetest.Server
	leads := -1
	all := stores.ConsulCluster(t, 3, "")
	for i, s := range all {
		if servers = append(servers, s); s.Leads(t) {
			leads = i
		}
	}
	stays := all[(leads+1)%3]
	feedtest.Examines(t, co.Opened(t, co.At(stays.Address, "e")))
	const term = 20 * time.Second // an election of the servers takes some seconds
	co.Ensemble(t, co.At(stays.Address, "e"), term, servers, leads, func() {
		if said := stays.Ask(t, "GET", "/v1/kv/elections/e?stale&raw", "", ""); !strings.Contains(said, "election_number") {
			t.Errorf("a stale read says %q", said)
		}
	})
}

// serveTLS serves with TLS what is at addr, to those who have a certificate.
func serveTLS(t *testing.T, a *feedtest.Authority, addr string) *httptest.Server {
	t.Helper()
	tr := new(http.Transport)
	silent := log.New(io.Discard, "", 0)
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: addr}) }, Transport: tr, ErrorLog: silent,
	})
	server.TLS, server.Config.ErrorLog = a.ServerTLS("server"), silent
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close(); tr.CloseIdleConnections() })
	return server
}

// The client that Open makes leaves a connection that has died without a word.
func TestAbandonedConnection(t *testing.T) {
	server := httptest.NewServer(newImitation())
	t.Cleanup(server.Close)
	relay := stores.NewRelay(t, strings.TrimPrefix(server.URL, "http://"))
	feedtest.Abandons(t, co.Opened(t, co.At(relay.Addr, "web")), relay.Swallow)
}

// Of all processes that run this, one at a time does the job.
func Example() {
	decider := consul.NewDecider(nil, "http://127.0.0.1:8500", "elections/nightly", &consul.Options{
		Token: func() (string, error) { return os.Getenv("CONSUL_HTTP_TOKEN"), nil },
	})
	log.Print(leaderelection.Config{Decider: decider, LeaderID: "web-1"}.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
