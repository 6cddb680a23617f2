//go:build go1.25

package lehttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// A redirect keeps the method, the path and the query, and the scheme that the client came by. It names the
// root for what has no path. A client that came to the leader's own address, in any case, by the scheme's
// port, said or left out, is not sent round in a circle.
func TestRedirect(t *testing.T) {
	at := func(hostPort string) le.RaceEntry { return record(1, "a", hostPort) }
	for name, c := range map[string]struct {
		leader le.RaceEntry
		scheme string // that is set
		url    string
		want   string // the Location, or "": it loops, or "503"
	}{
		"nothing known":        {le.RaceEntry{}, "", "http://front/", "503"},
		"to itself":            {record(3, "me", "10.0.0.3:80"), "", "http://front/", "503"},
		"a bad HostPort":       {at("evil.example/x?:80"), "", "http://front/", "503"},
		"by http":              {at("10.0.0.1:80"), "", "http://front/a%2Fb//c?d=e", "http://10.0.0.1:80/a%2Fb//c?d=e"},
		"IPv6":                 {at("[fd00::1]:443"), "", "http://front/a", "http://[fd00::1]:443/a"},
		"by https":             {at("app.example:80"), "", "https://front/x", "https://app.example:80/x"},
		"no path":              {at("app.example:80"), "", "*", "http://app.example:80/"},
		"itself":               {at("App.example:80"), "", "http://app.EXAMPLE:80/x", ""},
		"itself, by http":      {at("app.example:80"), "", "http://app.example/", ""},
		"itself, by https":     {at("app.example:443"), "https", "http://app.example/", ""},
		"itself, IPv6":         {at("[::1]:80"), "", "http://[::1]/", ""},
		"https from http":      {at("app.example:80"), "https", "http://app.example/", "https://app.example:80/"},
		"the port of https":    {at("app.example:443"), "", "http://app.example/", "http://app.example:443/"},
		"from another port":    {at("app.example:80"), "", "http://app.example:8080/", "http://app.example:80/"},
		"from another name":    {at("app.example:80"), "", "http://other.example/", "http://app.example:80/"},
		"without a name's dot": {at("app.example:80"), "", "http://app:80/", "http://app.example:80/"},
	} {
		h := routerOf(c.leader).Redirect(&lehttp.RedirectOptions{LeaderID: "me", Wait: -1, Scheme: c.scheme})
		want := map[string]int{"": http.StatusLoopDetected, "503": http.StatusServiceUnavailable}[c.want]
		if want == 0 {
			want = http.StatusTemporaryRedirect
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			w := asked(h, httptest.NewRequest(method, c.url, nil))
			to := w.Header().Get("Location")
			if w.Code != want || (to != "" || want == http.StatusTemporaryRedirect) && to != c.want || w.Header().Get("Cache-Control") != "no-store" || (want == http.StatusServiceUnavailable) && w.Header().Get("Retry-After") == "" {
				t.Errorf("%s, %s: %d %v", name, method, w.Code, w.Header())
			}
		}
	}
}

// A redirect waits for the next leader. If this process becomes that, the answer sends the client here
// once more. A request that another Proxy keeps does not wait.
func TestRedirectWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routerOf(record(1, "me", "me:80"))
		me := viewtest.NewCandidate(nil)
		me.SetStatus(le.Draining)
		called := false
		h := lehttp.RequireLeader(me, &lehttp.RequireOptions{Otherwise: r.Redirect(&lehttp.RedirectOptions{LeaderID: "me"})})(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }))
		ask := func(sentBy string) (string, int, time.Duration) {
			begin := time.Now()
			req := httptest.NewRequest(http.MethodPost, "http://front/x?y", strings.NewReader("x"))
			if sentBy != "" {
				req.Header.Set("Leaderelection-Sent-By", sentBy)
			}
			w := asked(h, req)
			return w.Header().Get("Location"), w.Code, time.Since(begin)
		}
		time.AfterFunc(3*time.Second, func() { r.News(vacant(1)) })
		time.AfterFunc(5*time.Second, func() { r.News(record(2, "b", "b:80")) })
		if to, code, took := ask(""); to != "http://b:80/x?y" || code != http.StatusTemporaryRedirect || took != 5*time.Second {
			t.Errorf("%d to %q after %v", code, to, took)
		}
		r.News(vacant(2))
		if _, code, took := ask("proxy; election=users"); code != http.StatusServiceUnavailable || took != 0 {
			t.Errorf("what a Proxy keeps: %d after %v", code, took)
		}
		time.AfterFunc(5*time.Second, func() { lead(me) })
		if to, code, took := ask(""); to != "http://front/x?y" || code != http.StatusTemporaryRedirect || took < 5*time.Second || took > 6*time.Second || called {
			t.Errorf("%d to %q after %v; the handler was called: %v", code, to, took, called)
		}
	})
}

// By default a request waits for twice the term in the record, and a second: for a drain of a term and
// a hand-over on a polled store, and for a crash. So it does for a redirect, and at a group's routers.
func TestWaitFollowsFromTheTerm(t *testing.T) {
	leftBehind := vacant(1)
	leftBehind.TermLength = 4 * time.Second
	for name, c := range map[string]struct {
		known *le.RaceEntry
		wait  time.Duration // that was set
		want  time.Duration
	}{
		"a term of 4 s":         {&leftBehind, 0, 9 * time.Second},
		"the term is not known": {nil, 0, 31 * time.Second},
		"set":                   {&leftBehind, time.Second, time.Second},
		"none":                  {&leftBehind, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := routerOf()
				if c.known != nil {
					r.News(*c.known)
				}
				proxy := r.Proxy(&lehttp.ProxyOptions{Wait: c.wait})
				defer proxy.Close()
				handlers := map[string]http.Handler{"proxy": proxy, "redirect": r.Redirect(&lehttp.RedirectOptions{Wait: c.wait})}
				if c.known == nil {
					group := lehttp.NewShardRouter()
					one := group.Proxy(byHeader, &lehttp.ProxyOptions{Wait: c.wait})
					defer one.Close()
					handlers["a group's proxy"] = one
					handlers["a group's redirect"] = group.Redirect(byHeader, &lehttp.RedirectOptions{Wait: c.wait})
				}
				for which, h := range handlers {
					begin := time.Now()
					req := post()
					req.Header.Set("Shard", "1")
					w := asked(h, req)
					if took := time.Since(begin); took != c.want || w.Code != http.StatusServiceUnavailable {
						t.Errorf("%s: %d after %v, want 503 after %v", which, w.Code, took, c.want)
					}
				}
			})
		})
	}
}

// electing is an election on a polled store. Each of its candidates answers with the number of its leadership, or
// passes on what comes, at "ID:80".
type electing struct {
	t        *testing.T
	d        *memory.Decider
	handlers map[string]http.Handler
}

func (e *electing) RoundTrip(r *http.Request) (*http.Response, error) {
	if h := e.handlers[r.URL.Host]; h != nil {
		return asked(h, r).Result(), nil
	}
	return nil, gone
}

// proxy is one with a router of its own.
func (e *electing) proxy(id string) *lehttp.Proxy {
	e.t.Helper()
	router := must(lehttp.Follow(le.WatchConfig{Decider: e.d.Handle().Polled(), MaxClockSkew: S}))(e.t)
	p := router.Proxy(&lehttp.ProxyOptions{LeaderID: id, Transport: e})
	e.t.Cleanup(func() { p.Close(); router.Close() })
	return p
}

// start starts a candidate, and waits for a minute. Stop ends its campaign, and not its router.
func (e *electing) start(id string) (c *le.Campaign, store *memory.Decider, stop func()) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	store = e.d.Handle()
	c = must(le.Config{Decider: store.Polled(), LeaderID: id, HostPort: []string{id + ":80"}, MaxClockSkew: S}.Start(ctx))(e.t)
	serve := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, le.ViewFrom(r.Context()).ElectionNumber()) }
	e.handlers[id+":80"] = lehttp.RequireLeader(c, &lehttp.RequireOptions{Otherwise: e.proxy(id)})(http.HandlerFunc(serve))
	time.Sleep(time.Minute)
	return c, store, func() { cancel(); <-c.Done() }
}

// ask makes a request, and returns the status of its answer, and how long that took.
func (e *electing) ask(h http.Handler) (int, time.Duration) {
	begin := time.Now()
	w := asked(h, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x")))
	return w.Code, time.Since(begin)
}

// The default Wait covers a crash, on a polled store: what waits for the dead leader gets to the next.
func TestDefaultWaitCoversACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &electing{t, memory.New(nil), map[string]http.Handler{}}
		_, dying, stopA := e.start("a")
		_, _, stopB := e.start("b")
		proxy := e.proxy("")
		time.Sleep(time.Minute)
		dying.Inject(memory.LoseRequests()) // nothing is heard of it
		delete(e.handlers, "a:80")
		if code, took := e.ask(proxy); code != http.StatusOK || took < 5*time.Second {
			t.Errorf("%d after %v", code, took)
		}
		stopA()
		stopB()
	})
}

// A router outlives the campaign of its process: what comes while that drains, and after its end, waits
// for the next leader and goes there. And a process that wins serves what waits in it, though its router
// has not heard of that yet.
func TestTheRouterOutlivesItsCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &electing{t, memory.New(nil), map[string]http.Handler{}}
		_, _, stopA := e.start("a")
		b, _, stopB := e.start("b")
		stopA()
		released := time.Now()
		won := make(chan time.Duration, 1)
		go func() {
			for !b.View().ValueInFuture() {
				time.Sleep(10 * time.Millisecond)
			}
			won <- time.Since(released)
		}()
		var both sync.WaitGroup
		both.Go(func() {
			if code, took := e.ask(e.handlers["b:80"]); code != http.StatusOK || took > <-won+200*time.Millisecond {
				t.Errorf("at the process that wins: %d after %v", code, took)
			}
		})
		if code, _ := e.ask(e.handlers["a:80"]); code != http.StatusOK {
			t.Errorf("at the process whose campaign has ended: %d", code)
		}
		both.Wait()
		stopB()
	})
}

// The Proxy and the Redirect take a leader's addresses as they are told to, and say why if none is left (see
// route.TestAddresses).
func TestAddresses(t *testing.T) {
	only := func(hostPort string) error { return errors.New(hostPort + " is none of ours") }
	two := []string{"10.0.0.1:80", "10.0.0.1:9000"}
	for name, c := range map[string]struct {
		hostPort []string
		choose   func(le.RaceEntry) []string
		check    func(string) error
		want     string // empty: none, and the log says why
	}{
		"none chosen":       {two, nil, nil, "10.0.0.1:80"},
		"by port":           {two, lehttp.Port("9000"), nil, "10.0.0.1:9000"},
		"by name":           {two, lehttp.Named("admin"), nil, "10.0.0.1:7"},
		"link-local":        {[]string{"169.254.169.254:80"}, nil, nil, ""},
		"the caller's rule": {two, nil, only, ""},
	} {
		var log logtest.Log
		e := record(1, "a", c.hostPort...)
		e.ConnectionParams = []byte(`{"addresses": {"admin": ["10.0.0.1:7"]}}`)
		r, dialled := routerOf(e), ""
		proxy := r.Proxy(&lehttp.ProxyOptions{
			Addresses: c.choose, CheckAddress: c.check, Wait: time.Hour, Logger: logger(&log),
			Transport: proxyTransport(func(r *http.Request) (*http.Response, error) { dialled = r.URL.Host; return answering(), nil }),
		})
		status := http.StatusOK
		if c.want == "" {
			status = http.StatusServiceUnavailable
		}
		if w := asked(proxy, get()); dialled != c.want || w.Code != status || (c.want == "") && log.String() == "" {
			t.Errorf("%s: %q is asked; %d %q; the log: %s", name, dialled, w.Code, w.Body, log.String())
		}
		w := asked(r.Redirect(&lehttp.RedirectOptions{Addresses: c.choose, CheckAddress: c.check, Wait: time.Hour}), get())
		if to := w.Header().Get("Location"); c.want != "" && to != "http://"+c.want+"/" || c.want == "" && (to != "" || w.Code != status) {
			t.Errorf("%s: redirected to %q, %d", name, to, w.Code)
		}
	}
}

// What a client says of where it comes from, and what would raise a fence, does not
// pass, unless Rewrite puts it back.
func TestProxyHeadersFromOutside(t *testing.T) {
	var got http.Header
	r := routerOf(record(1, "a", address(server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header })))))
	trust := func(p *httputil.ProxyRequest) {
		if p.In.Header.Get("From-Ours") == "" {
			return
		}
		for _, k := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", fence.Header} {
			p.Out.Header[k] = p.In.Header[k]
		}
	}
	byDefault, trusting := proxy(t, r, nil), proxy(t, r, &lehttp.ProxyOptions{Rewrite: trust})
	for _, c := range []struct {
		front      *httptest.Server
		ours, want string
	}{
		{byDefault, "1", "For: 127.0.0.1 Proto: http Host: " + address(byDefault) + " Forwarded:  Token: "},
		{trusting, "", "For: 127.0.0.1 Proto: http Host: " + address(trusting) + " Forwarded:  Token: "},
		{trusting, "1", "For: 203.0.113.7 Proto: https Host: shop.example Forwarded: for=203.0.113.7 Token: orders:7"},
	} {
		req := request(t, http.MethodGet, c.front.URL, nil)
		for k, v := range map[string]string{
			"From-Ours": c.ours, "X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.example",
			"Forwarded": "for=203.0.113.7", fence.Header: "orders:7",
			"Fencing_Token": "orders:8", "fencing_token": "orders:9", "X_Forwarded_For": "1.2.3.4", "x-forwarded_host": "evil.example",
		} {
			req.Header[k] = []string{v}
		}
		do(t, client(t), req)
		for k := range got {
			if strings.Contains(k, "_") {
				t.Errorf("ours %q: the leader got %s", c.ours, k)
			}
		}
		h := func(k string) string { return strings.Join(got[k], ", ") }
		if all := fmt.Sprintf("For: %s Proto: %s Host: %s Forwarded: %s Token: %s", h("X-Forwarded-For"), h("X-Forwarded-Proto"), h("X-Forwarded-Host"), h("Forwarded"), h(fence.Header)); all != c.want {
			t.Errorf("ours %q: the leader got\n%s, want\n%s", c.ours, all, c.want)
		}
	}
}

// serveTLS starts a candidate with a certificate for name, which pool then trusts.
func serveTLS(t *testing.T, name string, pool *x509.CertPool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(says(name))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{routetest.Certificate(t, name, pool)}}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// With TLSFor each leader is asked for a certificate of its own, on connections of its own: one
// that was deposed answers for nobody, not even at the same address. With TLS all are
// asked for the same.
func TestTLSForEachLeader(t *testing.T) {
	pool := x509.NewCertPool()
	a, b := serveTLS(t, "a", pool), serveTLS(t, "b", pool)
	at := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "https://") }
	r := routerOf()
	asked := 0
	fault := error(nil)
	each := proxy(t, r, &lehttp.ProxyOptions{Wait: -1, TLSFor: func(e le.RaceEntry) (*tls.Config, error) {
		asked++
		return &tls.Config{RootCAs: pool, ServerName: e.LeaderID}, fault
	}})
	all := proxy(t, r, &lehttp.ProxyOptions{Wait: -1, TLS: &tls.Config{RootCAs: pool, ServerName: "a"}})
	expect := func(front *httptest.Server, status int, text string) {
		t.Helper()
		if res, got := ask(t, client(t), http.MethodGet, front.URL, nil); res.StatusCode != status || status == http.StatusOK && got != text {
			t.Errorf("%s %q, want %d %q", res.Status, got, status, text)
		}
	}
	e := record(1, "a", at(a))
	r.News(e)
	expect(each, http.StatusOK, "a")
	e.Extension++
	r.News(e)
	expect(each, http.StatusOK, "a")
	expect(all, http.StatusOK, "a")
	if asked != 1 {
		t.Errorf("TLSFor was asked %d times in a leadership", asked)
	}
	r.News(record(2, "b", at(b)))
	expect(each, http.StatusOK, "b")
	expect(all, http.StatusBadGateway, "")
	r.News(record(3, "c", at(b)))
	expect(each, http.StatusBadGateway, "") // what answers there is b
	fault = errors.New("no certificate")
	e = record(4, "a", at(a))
	r.News(e)
	expect(each, http.StatusServiceUnavailable, "")
	fault = nil
	e.Extension++
	r.News(e)
	expect(each, http.StatusOK, "a") // asked again with each record
}
