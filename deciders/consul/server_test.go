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
)

func TestMain(m *testing.M) {
	proctest.Main(consul.Open)
	goleak.VerifyTestMain(m)
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *consul.Decider {
	t.Helper()
	return feedtest.Opened(t, consul.Open, address)
}

// elections returns what makes an election after the other, each handle with connections of
// its own, to one of the servers after the other.
func elections(servers ...*stores.ConsulServer) func(t testing.TB) func() leaderelection.RaceDecider {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		key, n := feedtest.Unique(), 0
		return func() leaderelection.RaceDecider {
			n++
			return opened(t, "consul://"+servers[n%len(servers)].Address+"/elections/"+key)
		}
	}
}

func TestConformance(t *testing.T) {
	decidertest.Run(t, elections(stores.Consul(t, "")), nil)
}

// Three candidates in processes of their own: one is killed, one stopped past its
// term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	addr := stores.Consul(t, "").Address
	proctest.Run(t, proctest.Options{Address: "consul://" + addr + "/elections/e", Upstream: addr})
}

// Whatever befalls the leader's connections for a while, it keeps its leadership.
func TestFaults(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	addr := stores.Consul(t, "").Address
	proxy := stores.NewRelay(t, addr)
	proctest.Faults(t, opened(t, "consul://"+proxy.Addr+"/e"), opened(t, "consul://"+addr+"/e"), proxy)
}

func TestHandover(t *testing.T) {
	feedtest.Handover(t, elections(stores.Consul(t, "")))
}

func TestNewsAfterCutConnection(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	addr := stores.Consul(t, "").Address
	proxy := stores.NewRelay(t, addr)
	feedtest.News(t, opened(t, "consul://"+addr+"/e"), opened(t, "consul://"+proxy.Addr+"/e"), feedtest.Trouble{Break: proxy.Refuse, Heal: proxy.Heal})
}

func TestNewsAfterRestart(t *testing.T) {
	server := stores.Consul(t, "")
	handle := elections(server)(t)
	feedtest.News(t, handle(), handle(), feedtest.Trouble{Break: server.Stop, Heal: func() { server.Start(t) }})
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
	d := opened(t, "consul://"+server.Address+"/e")
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
	feedtest.Permanent(t, feedtest.ReadError(t, opened(t, "consul://"+server.Address+"/e?namespace=x")), "Namespace")
	feedtest.Passing(t, feedtest.ReadError(t, opened(t, "consul://"+server.Address+"/e?datacenter=elsewhere")), "elsewhere", "is its name right?")
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
	as := func(token string) *consul.Decider { return opened(t, "consul://:"+token+"@"+server.Address+"/e") }
	d := as(candidate)
	token := feedtest.Write(t, d, 2, feedtest.Write(t, d, 1, feedtest.Read(t, d).Token))
	feedtest.Number(t, feedtest.Follow(t, d), 2)
	if w, err := d.Durability(t.Context()); err != nil || len(w) != 1 {
		t.Error(w, err)
	}
	watching := as(observer)
	feedtest.Number(t, feedtest.Follow(t, watching), 2)
	feedtest.Permanent(t, feedtest.WriteError(t, watching, 3, token), "key:write", `key "e" { policy = "write" }`)
	for who, d := range map[string]*consul.Decider{"of another key": as(other), "unknown": as("55555555-0000-0000-0000-000000000000"), "none": opened(t, "consul://"+server.Address+"/e")} {
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
	a, other := feedtest.NewAuthority(t, "server", "candidate"), feedtest.NewAuthority(t)
	_, port, _ := strings.Cut(serveTLS(t, a, addr).Listener.Addr().String(), ":")
	at := func(host string, ca *feedtest.Authority) *consul.Decider {
		q := url.Values{"tls_ca": {ca.Path("ca.pem")}, "tls_cert": {a.Path("candidate.pem")}, "tls_key": {a.Path("candidate.key")}}
		return opened(t, "consul://"+host+":"+port+"/e?"+q.Encode())
	}
	d := at("127.0.0.1", a)
	feedtest.Write(t, d, 1, nil)
	feedtest.Number(t, feedtest.Follow(t, at("localhost", a)), 1)
	feedtest.Refuses(t, at("127.0.0.1", other), "certificate", "tls_ca")
	feedtest.Refuses(t, opened(t, "consul://127.0.0.1:"+port+"/e?tls=true&tls_ca="+url.QueryEscape(a.Path("ca.pem"))), "tls_cert")
	feedtest.Refuses(t, opened(t, "consul://127.0.0.1:"+port+"/e"), "tls=true")
	feedtest.Refuses(t, opened(t, "consul://"+addr+"/e?tls=true"), "does not speak TLS")
}

// Authority, certificate and key are replaced, and with them the agent's.
func TestRenewedCertificates(t *testing.T) {
	a := feedtest.NewAuthority(t, "server", "candidate")
	server := serveTLS(t, a, stores.Consul(t, "").Address)
	q := url.Values{"tls": {"true"}, "tls_ca": {a.Path("ca.pem")}, "tls_cert": {a.Path("candidate.pem")}, "tls_key": {a.Path("candidate.key")}}
	d := opened(t, "consul://"+server.Listener.Addr().String()+"/e?"+q.Encode())
	token := feedtest.Write(t, d, 1, nil)
	a.Renew()
	server.CloseClientConnections()
	_, _ = d.ReadCurrent(t.Context()) // over a connection that it still took for open
	feedtest.Write(t, d, 2, token)
	feedtest.Number(t, feedtest.Follow(t, d), 2)
}

// A snapshot that is restored in place sets the record back. What is known of later
// versions is refused, and a feed tells of the record as it is.
func TestSnapshot(t *testing.T) {
	server := stores.Consul(t, "")
	d := opened(t, "consul://"+server.Address+"/e?feed_wait=1s")
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
	feedtest.Warns(t, consul.Examine(1), "one server", "run three")
	feedtest.Warns(t, consul.Examine(4), "4 servers", "loss of 1,", "no more than 3", "3 or 5")
	feedtest.Warns(t, consul.Examine(3))
	c := &changed{s: newImitation()}
	feedtest.Examines(t, c.decider(nil), "one server")
	for _, body := range []string{"", "[]", "null", "{}", "<html>"} {
		c.read = func(a *reply) { a.says(200, body) }
		_, err := c.decider(nil).Durability(t.Context())
		feedtest.Passing(t, err, "examining the servers of", "elections/one")
	}
	_, err := consul.NewDecider(nil, "http://127.0.0.1:1", "/", nil).Durability(t.Context())
	feedtest.Permanent(t, err, "slash")
}

// Of three servers the one that leads is killed: a leadership outlives that. Then another
// one: nobody serves, which is told and may pass. When one is back, it goes on.
func TestServers(t *testing.T) {
	servers := stores.ConsulCluster(t, 3, "")
	i := leads(t, servers)
	stays := servers[(i+1)%3]
	if w, err := opened(t, "consul://"+stays.Address+"/e").Durability(t.Context()); err != nil || len(w) > 0 {
		t.Error(w, err)
	}
	const term = 20 * time.Second // an election of the servers takes some seconds
	elected := make(chan context.Context, 1)
	ctx, cancel := context.WithCancel(t.Context())
	campaign, err := leaderelection.Config{
		Decider: opened(t, "consul://"+stays.Address+"/e"), LeaderID: "a", TermLength: term, ClockPolicy: leaderelection.SharedClock,
		OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { elected <- ctx },
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = campaign.Wait() }()
	leading := <-elected
	first, err := opened(t, "consul://"+stays.Address+"/e").ReadCurrent(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	servers[i].Stop()
	begun := time.Now()
	d := opened(t, "consul://"+stays.Address+"/e")
	await(t, func() error { _, err := d.ReadCurrent(t.Context()); return err })
	t.Logf("the servers answer again %v after the death of their leader", time.Since(begun).Round(time.Millisecond))
	await(t, func() error {
		e, err := d.ReadCurrent(t.Context())
		if err == nil && e.Extension < first.Extension+2 {
			err = fmt.Errorf("%d extensions", e.Extension)
		}
		return err
	})
	if leading.Err() != nil {
		t.Errorf("the leadership has ended: %v", context.Cause(leading))
	}
	t.Logf("two extensions within %v of the death of Consul's leader", time.Since(begun).Round(time.Millisecond))
	if e := feedtest.Read(t, d); e.ElectionNumber != first.ElectionNumber {
		t.Errorf("%+v", e)
	}

	j := (i + 2) % 3
	servers[j].Stop()
	stale := func() string { return stays.Ask(t, "GET", "/v1/kv/e?stale&raw", "", "") }
	if !strings.Contains(stale(), "election_number") {
		t.Errorf("a stale read says %q", stale())
	}
	short, end := context.WithTimeout(t.Context(), 15*time.Second)
	defer end()
	_, err = d.ReadCurrent(short)
	feedtest.Passing(t, err)
	servers[j].Start(t)
	await(t, func() error { _, err := d.ReadCurrent(t.Context()); return err })
}

// await returns when try has worked; its errors must be such as may pass.
func await(t *testing.T, try func() error) {
	t.Helper()
	for begun := time.Now(); ; {
		err := try()
		if err == nil {
			return
		}
		if feedtest.Passing(t, err); t.Failed() || time.Since(begun) > 2*time.Minute {
			t.Fatal(err)
		}
		pause := time.NewTimer(100 * time.Millisecond)
		<-pause.C
	}
}

// leads is which of the servers leads the others.
func leads(t *testing.T, servers []*stores.ConsulServer) int {
	t.Helper()
	for i, s := range servers {
		if s.Leads(t) {
			return i
		}
	}
	t.Fatal("nobody leads")
	return 0
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
	feedtest.Abandons(t, feedtest.Opened(t, consul.Open, "consul://"+relay.Addr+"/elections/web"), relay.Swallow)
}
