//go:build go1.25

package lehttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/lehttp"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// nobody is an address that takes no connection.
func nobody(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// standing is a Candidate that may begin to lead.
type standing struct {
	mu sync.Mutex
	l  *leads
}

func (s *standing) View() *le.TimeView { s.mu.Lock(); defer s.mu.Unlock(); return s.l.view.TimeView }

func (s *standing) Status() le.Status { s.mu.Lock(); defer s.mu.Unlock(); return s.l.status }

func (s *standing) Leader() le.RaceEntry { return le.RaceEntry{} }

func (s *standing) lead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.l = leading()
}

// A request that a standby keeps is served by it if it is the standby that wins.
func TestKeptRequestIsServedByTheStandbyThatWins(t *testing.T) {
	for name, body := range map[string]func() io.Reader{
		"no body":    func() io.Reader { return nil },
		"short body": func() io.Reader { return strings.NewReader("payload") },
	} {
		t.Run(name, func(t *testing.T) {
			me := &standing{l: &leads{view: viewtest.New(nil, 0), status: le.Following}}
			r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
			r.News(vacant(1))
			p := r.Proxy(&lehttp.ProxyOptions{LeaderID: "me", Wait: time.Minute})
			defer p.Close()
			asked := make(chan struct{})
			elsewhere := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { close(asked); p.ServeHTTP(w, r) })
			var via, query string
			front := server(t, lehttp.RequireLeader(me, &lehttp.RequireOptions{Otherwise: elsewhere})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				via, query = r.Header.Get("Via")+r.Header.Get("X-Forwarded-For"), r.URL.RawQuery
				_, _ = io.Copy(w, r.Body)
			})))
			go func() {
				<-asked
				r.News(record(2, "me", nobody(t))) // known before it leads
				me.lead()
			}()
			want := ""
			if b := body(); b != nil {
				all, _ := io.ReadAll(b)
				want = string(all)
			}
			res, got := ask(t, client(t), http.MethodPost, front.URL+"/?a;b", body())
			if res.StatusCode != http.StatusOK || got != want || via != "" || query != "a;b" {
				t.Errorf("%d, %d bytes, want %d; as the handler sees it: %q, %q", res.StatusCode, len(got), len(want), via, query)
			}
		})
	}
}

// One that comes home when leadership is lost again is refused, and not kept anew.
func TestKeptRequestComesHomeOnce(t *testing.T) {
	gate := &secondTime{lead: leading(), not: &leads{view: viewtest.New(nil, 0)}}
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "me", nobody(t)))
	p := r.Proxy(&lehttp.ProxyOptions{LeaderID: "me", Wait: time.Minute})
	defer p.Close()
	w := httptest.NewRecorder()
	called := false
	h := lehttp.RequireLeader(gate, &lehttp.RequireOptions{Otherwise: p})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }))
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusServiceUnavailable || called {
		t.Errorf("%d %q, the handler was called: %v", w.Code, w.Body, called)
	}
}

// secondTime leads only the second time it is asked.
type secondTime struct {
	mu        sync.Mutex
	asked     int
	lead, not *leads
}

func (s *secondTime) Status() le.Status    { return le.Leading }
func (s *secondTime) Leader() le.RaceEntry { return le.RaceEntry{} }

func (s *secondTime) View() *le.TimeView {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked++; s.asked == 2 {
		return s.lead.view.TimeView
	}
	return s.not.view.TimeView
}

// A process behind one of the leader's addresses that refuses need not be the
// leader: the next address is tried, and then kept to.
func TestProxyTriesTheNextAddressWhenRefused(t *testing.T) {
	wrong := leading()
	wrong.status = le.Following
	var asked atomic.Int32
	a := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		lehttp.RequireLeader(wrong, nil)(says("wrong")).ServeHTTP(w, req)
	}))
	b := server(t, lehttp.RequireLeader(leading(), nil)(says("right")))
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "b", address(a), address(b)))
	front := proxy(t, r, &lehttp.ProxyOptions{Wait: time.Minute})
	for _, payload := range []string{"", "payload", "again"} {
		if res, body := ask(t, client(t), http.MethodPost, front.URL, strings.NewReader(payload)); body != "right" {
			t.Errorf("%d %q", res.StatusCode, body)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the wrong process was asked %d times", n)
	}
}

// However many requests wait for a leader that has crashed, it is dialled a few
// times; and they are told when to come back.
func TestProxyDialsACrashedLeaderSparingly(t *testing.T) {
	var dials atomic.Int32
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}}
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "leader-7", "127.0.0.1:1"))
	front := proxy(t, r, &lehttp.ProxyOptions{Wait: time.Second, Transport: transport})
	warm := client(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			res, body := ask(t, warm, http.MethodGet, front.URL, nil)
			if res.StatusCode != http.StatusBadGateway || res.Header.Get("Retry-After") == "" || strings.Contains(body, "127.0.0.1") || strings.Contains(body, "leader-7") {
				t.Errorf("%d %v %q", res.StatusCode, res.Header, body)
			}
		})
	}
	wg.Wait()
	if n := dials.Load(); n > 8+6 { // each may dial before the first has failed; then 50, 100, 200, 400, 500 ms
		t.Errorf("dialled %d times in a second", n)
	}
}

// Only time that is the request's own makes a 504.
func TestProxyDialTimeout(t *testing.T) {
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return (&net.Dialer{Deadline: time.Now().Add(-time.Second)}).DialContext(ctx, network, addr)
	}}
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", "127.0.0.1:1"))
	front := proxy(t, r, &lehttp.ProxyOptions{Wait: -1, Transport: transport})
	if res, body := ask(t, client(t), http.MethodGet, front.URL, nil); res.StatusCode != http.StatusBadGateway {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	slow := proxyTransport(func(req *http.Request) (*http.Response, error) { return nil, os.ErrDeadlineExceeded })
	front = proxy(t, r, &lehttp.ProxyOptions{Wait: -1, Transport: slow})
	if res, body := ask(t, client(t), http.MethodGet, front.URL, nil); res.StatusCode != http.StatusBadGateway {
		t.Errorf("a deadline of the connection: %d %q", res.StatusCode, body)
	}
	slow = func(req *http.Request) (*http.Response, error) { return nil, context.DeadlineExceeded }
	front = proxy(t, r, &lehttp.ProxyOptions{Wait: -1, Transport: slow})
	if res, body := ask(t, client(t), http.MethodGet, front.URL, nil); res.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("the request's time: %d %q", res.StatusCode, body)
	}
}

type proxyTransport func(*http.Request) (*http.Response, error)

func (f proxyTransport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A client whose body is too large, or breaks off, is told so.
func TestProxyBodyThatCannotBeRead(t *testing.T) {
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", address(server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})))))
	p := r.Proxy(nil)
	defer p.Close()
	front := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1000)
		p.ServeHTTP(w, r)
	}))
	for name, body := range map[string]io.Reader{
		"kept":           strings.NewReader(strings.Repeat("x", 2000)),
		"streamed":       strings.NewReader(strings.Repeat("x", 200_000)),
		"unknown length": io.MultiReader(strings.NewReader(strings.Repeat("x", 2000))),
	} {
		if res, text := ask(t, client(t), http.MethodPut, front.URL, body); res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d %q", name, res.StatusCode, text)
		}
	}
	for name, n := range map[string]int64{"kept": 10, "streamed": 1 << 20} {
		w := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPut, "/", iotestErr{})
		req.ContentLength = n
		p.ServeHTTP(w, req)
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s, broken off: %d %q", name, w.Code, w.Body)
		}
	}
}

type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// What a query means is the leader's to say.
func TestProxyLeavesTheQueryAlone(t *testing.T) {
	var got string
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", address(server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.URL.RawQuery })))))
	front := proxy(t, r, nil)
	for _, q := range []string{"a;b=1&c=%zz", "a=1;b=2", "x=y"} {
		ask(t, client(t), http.MethodGet, front.URL+"/?"+q, nil)
		if got != q {
			t.Errorf("%q became %q", q, got)
		}
	}
}
