//go:build go1.25

package lehttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
	"github.com/c8e606e4/leaderelection/lehttp"
)

func TestProxySendsToTheLeader(t *testing.T) {
	var got *http.Request
	var body []byte
	leader := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Trailer", "Sum")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "made")
		w.Header().Set("Sum", "42")
	})
	front := frontOf(t, leader, &lehttp.ProxyOptions{Rewrite: func(p *httputil.ProxyRequest) { p.Out.Header.Set("X-Extra", "1") }})
	for _, payload := range []string{"", "short", strings.Repeat("long", 100_000)} {
		res, text := ask(t, client(t), http.MethodPost, front.URL+"/a%2Fb?c=d", strings.NewReader(payload))
		if res.StatusCode != http.StatusCreated || text != "made" || res.Trailer.Get("Sum") != "42" {
			t.Errorf("%d %q %v", res.StatusCode, text, res.Trailer)
		}
		if got.RequestURI != "/a%2Fb?c=d" || got.Host != address(front) || string(body) != payload {
			t.Errorf("%s of %s, %d bytes", got.RequestURI, got.Host, len(body))
		}
		h := got.Header
		if h.Get("X-Forwarded-For") != "127.0.0.1" || h.Get("X-Forwarded-Proto") != "http" || h.Get("X-Extra") != "1" || !strings.HasPrefix(h.Get("Via"), "1.1 lehttp-") {
			t.Errorf("header %v", h)
		}
	}
}

func TestProxyWithoutALeader(t *testing.T) {
	expired := record(1, "leader-7", "127.0.0.1:1")
	expired.TermExpiry = time.Now().Add(-S)
	held := record(1, "me", "127.0.0.1:1")
	held.TermExpiry = time.Now().Add(8500 * time.Millisecond)
	for _, c := range []struct {
		name  string
		entry le.RaceEntry
		retry string
		tells string // the client
		says  string // the log
	}{
		{"nothing known", le.RaceEntry{}, "1", "not known yet", "has not been read yet"},
		{"vacant", vacant(1), "1", "there is no leader", "was given up"},
		{"lapsed", expired, "1", "there is no leader", `the term of \"leader-7\" has run out`},
		{"held by this process, which does not lead", held, "10", "does not lead", "does not lead"},
		{"no HostPort", record(1, "leader-7"), "16", "cannot be reached", "has no HostPort"},
		{"bad HostPort", record(1, "leader-7", "nonsense", "host:0", ":80", "host/path:80", "a b:80", "u@host:80", "host:http"), "16", "cannot be reached", "HostPort"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log logtest.Log
			front := proxy(t, routerOf(c.entry), &lehttp.ProxyOptions{LeaderID: "me", Wait: -1, Logger: logger(&log)})
			res, body := ask(t, client(t), http.MethodGet, front.URL, nil)
			if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != c.retry || !strings.Contains(body, c.tells) {
				t.Errorf("%d, Retry-After %q, %q", res.StatusCode, res.Header.Get("Retry-After"), body)
			}
			if res.Header.Get("X-Content-Type-Options") != "nosniff" || res.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("header %v", res.Header)
			}
			front.Close() // the log is complete
			if !strings.Contains(log.String(), c.says) {
				t.Errorf("the log does not say %q: %s", c.says, log.String())
			}
			for _, secret := range append(c.entry.HostPort, "leader-7") {
				if strings.Contains(body, secret) {
					t.Errorf("a client is told of %q: %q", secret, body)
				}
			}
		})
	}
}

func TestProxyWaitsForALeader(t *testing.T) {
	leader := server(t, says("hello"))
	r := routerOf(vacant(1))
	front := proxy(t, r, &lehttp.ProxyOptions{Wait: time.Minute})
	var wg sync.WaitGroup
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		wg.Go(func() {
			if res, body := ask(t, client(t), method, front.URL, strings.NewReader("x")); body != "hello" {
				t.Errorf("%s: %d %q", method, res.StatusCode, body)
			}
		})
	}
	r.News(record(2, "b", address(leader)))
	wg.Wait()
}

// breaking is a leader that reads a request, makes news of the next leader, and
// breaks off.
func breaking(t *testing.T, news func()) string {
	return address(server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		news()
		panic(http.ErrAbortHandler)
	})))
}

func TestProxySendsAgainAcrossAHandover(t *testing.T) {
	for _, c := range []struct {
		name, method, key string
		body              io.Reader
		again             bool
	}{
		{"GET", http.MethodGet, "", nil, true},
		{"PUT", http.MethodPut, "", strings.NewReader("payload"), true},
		{"DELETE", http.MethodDelete, "", nil, true},
		{"POST", http.MethodPost, "", strings.NewReader("payload"), false},
		{"PATCH", http.MethodPatch, "", strings.NewReader("payload"), false},
		{"POST with a key", http.MethodPost, "k", strings.NewReader("payload"), true},
		{"PUT of a long body", http.MethodPut, "", bytes.NewReader(make([]byte, 100<<10)), false},
		{"PUT of unknown length", http.MethodPut, "", io.MultiReader(strings.NewReader("payload")), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got string
			next := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				got = string(b)
				_, _ = io.WriteString(w, "from b")
			}))
			r := routerOf()
			r.News(record(1, "a", breaking(t, func() { r.News(record(2, "b", address(next))) })))
			front := proxy(t, r, &lehttp.ProxyOptions{Wait: time.Minute})
			req := request(t, c.method, front.URL, c.body)
			if c.key != "" {
				req.Header.Set("Idempotency-Key", c.key)
			}
			res, text := do(t, client(t), req)
			switch {
			case c.again && (text != "from b" || c.body != nil && got != "payload"):
				t.Errorf("%d %q; the next leader got %q", res.StatusCode, text, got)
			case !c.again && res.StatusCode != http.StatusBadGateway:
				t.Errorf("%d %q, want 502", res.StatusCode, text)
			}
		})
	}
}

// Once means once: a second leader that breaks off too is told to the client.
func TestProxySendsAgainOnlyOnce(t *testing.T) {
	r := routerOf()
	var calls atomic.Int32
	third := server(t, says("from c"))
	second := breaking(t, func() { calls.Add(1); r.News(record(3, "c", address(third))) })
	first := breaking(t, func() { calls.Add(1); r.News(record(2, "b", second)) })
	r.News(record(1, "a", first))
	front := proxy(t, r, &lehttp.ProxyOptions{Wait: time.Minute})
	if res, body := ask(t, client(t), http.MethodGet, front.URL, nil); res.StatusCode != http.StatusBadGateway || calls.Load() != 2 {
		t.Errorf("%d %q after %d calls", res.StatusCode, body, calls.Load())
	}
}

// A request that RequireLeader refused goes on to the next leader, whatever its
// method; and one that reached the next leader before that knows that it leads
// is tried again there.
func TestProxyGoesOnWhenRefused(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		t.Run(method, func(t *testing.T) {
			r := routerOf()
			b := server(t, lehttp.RequireLeader(late(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			})))
			a := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				lehttp.RequireLeader(standby(), nil)(says("from a")).ServeHTTP(w, req)
				r.News(record(2, "b", address(b)))
			}))
			r.News(record(1, "a", address(a)))
			front := proxy(t, r, &lehttp.ProxyOptions{Wait: time.Minute})
			if res, body := ask(t, client(t), method, front.URL, strings.NewReader("payload")); body != "payload" {
				t.Errorf("%d %q", res.StatusCode, body)
			}
		})
	}
}

// A named election's refusals are known as such.
func TestProxyKnowsTheRefusalsOfItsElection(t *testing.T) {
	b := lehttp.RequireLeader(late(), &lehttp.RequireOptions{Election: "a b/ü"})(says("hello"))
	front := frontOf(t, b, &lehttp.ProxyOptions{Wait: time.Minute, Election: "a b/ü"})
	if res, body := ask(t, client(t), http.MethodPost, front.URL, strings.NewReader("x")); body != "hello" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// A leader that passes a request on to a service behind another election has
// worked on it, also when that service refuses: the request is not sent again.
func TestProxyDoesNotRepeatWhatARelayRefused(t *testing.T) {
	for _, c := range []struct {
		name, election, relayed string
		guarded                 bool
	}{
		{"the leader has RequireLeader", "", "", true},
		{"it has none, and the elections have names", "orders", "users", false},
		{"it has none, and its own election has a name", "orders", "", false},
		{"it has none, and the other election has a name", "", "users", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var calls atomic.Int32
			h := relay(t, &calls, c.relayed)
			if c.guarded {
				h = lehttp.RequireLeader(leading(), &lehttp.RequireOptions{Election: c.election})(h)
			}
			front := frontOf(t, h, &lehttp.ProxyOptions{Wait: 200 * time.Millisecond, Election: c.election})
			res, body := ask(t, client(t), http.MethodPost, front.URL, strings.NewReader("payload"))
			if n := calls.Load(); n != 1 || res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("the leader's handler was called %d times; %d %q", n, res.StatusCode, body)
			}
		})
	}
}

func TestProxyRefusedToTheEnd(t *testing.T) {
	front := frontOf(t, lehttp.RequireLeader(standby(), nil)(says("from a")), &lehttp.ProxyOptions{Wait: 30 * time.Millisecond})
	res, body := ask(t, client(t), http.MethodGet, front.URL, nil)
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "16" || !strings.Contains(body, "does not lead any more") {
		t.Errorf("%d %v %q", res.StatusCode, res.Header, body)
	}
}

func TestProxyTriesTheLeadersOtherAddresses(t *testing.T) {
	closed, leader := nobody(t), server(t, says("hello"))
	r := routerOf(record(1, "a", "nonsense", closed, address(leader)))
	front := proxy(t, r, nil)
	for range 3 {
		if res, body := ask(t, client(t), http.MethodPost, front.URL, strings.NewReader("x")); body != "hello" {
			t.Errorf("%d %q", res.StatusCode, body)
		}
	}
	r.News(record(2, "b", closed))
	front = proxy(t, r, &lehttp.ProxyOptions{Wait: time.Millisecond})
	if res, body := ask(t, client(t), http.MethodPost, front.URL, nil); res.StatusCode != http.StatusBadGateway {
		t.Errorf("%d %q, want 502", res.StatusCode, body)
	}
}

// A process behind one of the leader's addresses that refuses need not be the
// leader: the next address is tried, and then kept to.
func TestProxyTriesTheNextAddressWhenRefused(t *testing.T) {
	var asked atomic.Int32
	a := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		lehttp.RequireLeader(standby(), nil)(says("wrong")).ServeHTTP(w, req)
	}))
	b := server(t, lehttp.RequireLeader(leading(), nil)(says("right")))
	front := proxy(t, routerOf(record(1, "b", address(a), address(b))), &lehttp.ProxyOptions{Wait: time.Minute})
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
	front := proxy(t, routerOf(record(1, "leader-7", "127.0.0.1:1")), &lehttp.ProxyOptions{Wait: time.Second, Transport: transport})
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
	dialing := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return (&net.Dialer{Deadline: time.Now().Add(-time.Second)}).DialContext(ctx, network, addr)
	}}
	fails := func(err error) http.RoundTripper {
		return proxyTransport(func(*http.Request) (*http.Response, error) { return nil, err })
	}
	for name, c := range map[string]struct {
		transport http.RoundTripper
		want      int
	}{
		"of the dial":       {dialing, http.StatusBadGateway},
		"of the connection": {fails(os.ErrDeadlineExceeded), http.StatusBadGateway},
		"of the request":    {fails(context.DeadlineExceeded), http.StatusGatewayTimeout},
	} {
		front := proxy(t, routerOf(record(1, "a", "127.0.0.1:1")), &lehttp.ProxyOptions{Wait: -1, Transport: c.transport})
		if res, body := ask(t, client(t), http.MethodGet, front.URL, nil); res.StatusCode != c.want {
			t.Errorf("a deadline %s: %d %q", name, res.StatusCode, body)
		}
	}
}

// A client whose body is too large, or breaks off, is told so.
func TestProxyBodyThatCannotBeRead(t *testing.T) {
	r := routerOf()
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
		req := httptest.NewRequest(http.MethodPut, "/", iotest.ErrReader(io.ErrUnexpectedEOF))
		req.ContentLength = n
		if w := asked(p, req); w.Code != http.StatusBadRequest {
			t.Errorf("%s, broken off: %d %q", name, w.Code, w.Body)
		}
	}
}

// What a query means is the leader's to say.
func TestProxyLeavesTheQueryAlone(t *testing.T) {
	var got string
	front := frontOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.URL.RawQuery }), nil)
	for _, q := range []string{"a;b=1&c=%zz", "a=1;b=2", "x=y"} {
		ask(t, client(t), http.MethodGet, front.URL+"/?"+q, nil)
		if got != q {
			t.Errorf("%q became %q", q, got)
		}
	}
}

func TestProxyLoop(t *testing.T) {
	var log bytes.Buffer
	r := routerOf()
	front := proxy(t, r, &lehttp.ProxyOptions{Logger: logger(&log)})
	other := routerOf()
	behind := proxy(t, other, nil)
	other.News(record(1, "a", address(front)))
	for i, c := range []struct{ name, address string }{{"itself", address(front)}, {"another that points back", address(behind)}} {
		t.Run(c.name, func(t *testing.T) {
			r.News(record(uint64(i+1), "a", c.address))
			res, body := ask(t, client(t), http.MethodGet, front.URL, nil)
			if res.StatusCode != http.StatusLoopDetected || !strings.Contains(body, "leads back here") {
				t.Errorf("%d %q", res.StatusCode, body)
			}
		})
	}
	if n := strings.Count(log.String(), "names a proxy"); n != 2 {
		t.Errorf("complained %d times of two leaderships: %s", n, log.String())
	}
}

// What is wrong with a leader's addresses is logged once for each leadership, and a mark
// of a refusal counts with its status alone, and does not reach the client.
func TestProxyComplainsOnce(t *testing.T) {
	var log logtest.Log
	r := routerOf()
	front := proxy(t, r, &lehttp.ProxyOptions{Wait: -1, Logger: logger(&log)})
	for n := range uint64(2) {
		r.News(record(n+1, "a", "169.254.169.254:80"))
		for range 3 {
			_, _ = ask(t, client(t), http.MethodGet, front.URL, nil)
		}
	}
	if n := strings.Count(log.String(), "hostPort="); n != 2 {
		t.Errorf("%d complaints in two leaderships:\n%s", n, log.String())
	}
	calls := 0
	r.News(record(3, "b", address(server(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.Header().Set("Leaderelection-Not-Leading", "refused")
		_, _ = io.WriteString(w, "done")
	})))))
	front = proxy(t, r, &lehttp.ProxyOptions{Wait: 100 * time.Millisecond})
	res, body := ask(t, client(t), http.MethodPost, front.URL, strings.NewReader("x"))
	if calls != 1 || body != "done" || res.Header.Get("Leaderelection-Not-Leading") != "" {
		t.Errorf("%d calls, %d %q %v", calls, res.StatusCode, body, res.Header)
	}
}

// What the leader flushes arrives before it has finished, and what the client
// sends arrives before it has finished.
func TestProxyStreams(t *testing.T) {
	leader := lehttp.RequireLeader(leading(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := rc.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			fmt.Fprintf(w, "echo %s\n", lines.Text())
			_ = rc.Flush()
		}
	}))
	front := frontOf(t, leader, &lehttp.ProxyOptions{FullDuplex: true})
	up, send := io.Pipe()
	go fmt.Fprintln(send, "0")
	res, err := client(t).Do(request(t, http.MethodPost, front.URL, up))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	down := bufio.NewReader(res.Body)
	for i := range 3 {
		if line, err := down.ReadString('\n'); line != fmt.Sprintf("echo %d\n", i) {
			t.Fatal(line, err)
		}
		fmt.Fprintln(send, i+1)
	}
	_ = send.Close()
	if _, err := io.ReadAll(down); err != nil {
		t.Error(err)
	}
}

// A connection that was upgraded, as for WebSocket, ends with the leadership. What is said on
// it is lines of text here: the proxy does not look at it.
func TestProxyWebSocket(t *testing.T) {
	l := leading()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw := upgraded(t, w)
		defer conn.Close()
		for rw.Flush() == nil {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			if line == "over\n" {
				over(l)
			}
			fmt.Fprint(rw, "echo "+line)
		}
	})
	w := upgrade(t, frontOf(t, lehttp.RequireLeader(l, nil)(echo), nil))
	for _, s := range []string{"one", "two"} {
		w.say("%s\n", s)
		if line, err := w.r.ReadString('\n'); err != nil || line != "echo "+s+"\n" {
			t.Fatal(line, err)
		}
	}
	w.say("over\n")
	if line, err := w.r.ReadString('\n'); err == nil {
		t.Errorf("a process that does not lead any more sent %q", line)
	}
}

// A trailer arrives once, and as a trailer alone, whatever it passes through.
func TestTrailersArriveOnce(t *testing.T) {
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("Sum", "42")
		w.Header().Set(http.TrailerPrefix+"Late", "43")
	})
	guard := lehttp.RequireLeader(leading(), nil)
	to := func(h http.Handler) http.Handler {
		p := routerOf(record(1, "a", address(server(t, h)))).Proxy(nil)
		t.Cleanup(p.Close)
		return p
	}
	for name, h := range map[string]http.Handler{
		"leader":                          guard(app),
		"proxy":                           to(app),
		"proxy, leader":                   to(guard(app)),
		"standby's proxy, leader":         lehttp.RequireLeader(standby(), &lehttp.RequireOptions{Otherwise: to(guard(app))})(app),
		"leader that is a proxy, another": guard(to(guard(app))),
	} {
		res, body := ask(t, client(t), http.MethodGet, server(t, h).URL, nil)
		if body != "body" || strings.Join(res.Trailer["Sum"], ",") != "42" || strings.Join(res.Trailer["Late"], ",") != "43" || res.Header["Sum"] != nil || res.Header["Late"] != nil {
			t.Errorf("%s: %q, header %v, trailer %v", name, body, res.Header, res.Trailer)
		}
	}
}

// A client that goes away does not leave anything waiting.
func TestProxyClientGoesAway(t *testing.T) {
	r := routerOf()
	p := r.Proxy(&lehttp.ProxyOptions{Wait: time.Hour})
	defer p.Close()
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	front := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer close(ended)
		cancel()
		p.ServeHTTP(w, req)
	}))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := client(t).Do(req); err == nil {
		_ = res.Body.Close()
		t.Error(res.Status)
	}
	<-ended
}

// A leader that is silent when the next one is there is left: what can be sent again
// goes to the next, and nobody waits for the rest.
func TestProxyLeavesAHungLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	t.Run("asked", func(t *testing.T) {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
			t.Run(method, func(t *testing.T) {
				t.Parallel()
				r := routerOf()
				next := server(t, says("from b"))
				hung := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					_, _ = io.Copy(io.Discard, req.Body)
					r.News(record(2, "b", address(next)))
					<-req.Context().Done()
				}))
				r.News(record(1, "a", address(hung)))
				front := proxy(t, r, nil)
				res, body := ask(t, client(t), method, front.URL, strings.NewReader("payload"))
				if method == http.MethodPost {
					if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "may have taken effect") {
						t.Errorf("%d %q", res.StatusCode, body)
					}
				} else if body != "from b" {
					t.Errorf("%d %q", res.StatusCode, body)
				}
			})
		}
	})
	t.Run("streaming", func(t *testing.T) {
		t.Parallel()
		hung := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
		}))
		r := routerOf(record(1, "a", address(hung)))
		res, err := client(t).Get(proxy(t, r, nil).URL)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines := bufio.NewReader(res.Body)
		if line, err := lines.ReadString('\n'); line != "data: 1\n" {
			t.Fatal(line, err)
		}
		r.News(record(2, "b", "127.0.0.1:1"))
		if _, err := io.ReadAll(lines); err == nil {
			t.Error("the stream ended as if it were whole")
		}
	})
	t.Run("upgraded", func(t *testing.T) {
		t.Parallel()
		hung := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			conn, rw := upgraded(t, w)
			defer conn.Close()
			_, _ = io.Copy(io.Discard, rw) // until it is closed
		}))
		r := routerOf(record(1, "a", address(hung)))
		conn := upgrade(t, proxy(t, r, nil))
		r.News(record(2, "b", "127.0.0.1:1"))
		if _, err := io.ReadAll(conn.r); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Log(err) // however it ends, it ends
		}
	})
}

// An answer that was sent by its leader arrives whole, however slowly the client
// takes it, and whoever leads by then.
func TestProxyPassesOnWhatIsUnderWay(t *testing.T) {
	long := strings.Repeat("0123456789", 1<<17)
	r := routerOf(record(1, "a", address(server(t, says(long)))))
	res, err := client(t).Get(proxy(t, r, nil).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	half := make([]byte, len(long)/2)
	if _, err := io.ReadFull(res.Body, half); err != nil {
		t.Fatal(err)
	}
	r.News(record(2, "b", "127.0.0.1:1"))
	rest, err := io.ReadAll(res.Body)
	if err != nil || string(half)+string(rest) != long {
		t.Errorf("%d of %d bytes, %v", len(half)+len(rest), len(long), err)
	}
}

// replica is a candidate with an HTTP server behind RequireLeader that answers
// with its leadership's number.
type replica struct {
	id       string
	campaign *le.Campaign
	elected  chan time.Time
}

// join starts one on an election.
func join(t testing.TB, ctx context.Context, d le.RaceDecider, id string) *replica {
	t.Helper()
	s := &replica{id: id, elected: make(chan time.Time, 1)}
	ready := make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-ready
		lehttp.RequireLeader(s.campaign, nil)(http.HandlerFunc(s.serve)).ServeHTTP(w, r)
	})
	campaign, err := le.Config{
		Decider: d, LeaderID: id, HostPort: []string{address(server(t, h))}, MaxClockSkew: S,
		OnElected: func(context.Context, *le.TimeView) { s.elected <- time.Now() },
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s.campaign = campaign
	close(ready)
	return s
}

func (s *replica) serve(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	fmt.Fprint(w, uint64(le.ViewFrom(r.Context()).ElectionNumber()))
}

// load asks a URL again and again.
type load struct {
	routetest.Load
	client *http.Client
	url    string
}

func (l *load) run(ctx context.Context, method string) {
	for ctx.Err() == nil {
		before := l.Greatest.Load()
		req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), method, l.url, strings.NewReader("payload"))
		if err != nil {
			l.Fault("%v", err)
			return
		}
		res, err := l.client.Do(req)
		if err != nil {
			l.Fault("%s: %v", method, err)
			continue
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		var number uint64
		if _, scan := fmt.Sscan(string(text), &number); res.StatusCode != http.StatusOK || err != nil || scan != nil {
			l.Fault("%s: %s %q %v", method, res.Status, text, err)
			continue
		}
		l.Answer(before, number)
	}
}

// No idempotent request is lost over hand-overs under load, none is answered by
// a process that does not lead any more, and the router notices at once.
func TestHandoversUnderLoad(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := memory.NewDecider()
	a, b := join(t, ctx, d, "a"), join(t, ctx, d, "b")
	router, err := lehttp.Follow(le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S})
	if err != nil {
		t.Fatal(err)
	}
	l := &load{client: client(t), url: proxy(t, router, &lehttp.ProxyOptions{Wait: 10 * time.Second}).URL}
	working, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { l.run(working, http.MethodGet) })
		wg.Go(func() { l.run(working, http.MethodPut) })
	}
	leader, next := a, b
	select {
	case <-a.elected:
	case <-b.elected:
		leader, next = b, a
	}
	var noticed []time.Duration
	for i := range rounds {
		for target := int64(i * 20); l.Answered.Load() < target && ctx.Err() == nil; {
			runtime.Gosched() // let the load run between two hand-overs
		}
		if err := le.Transfer(ctx, d, next.id); err != nil {
			t.Fatal(err)
		}
		at := <-next.elected
		for {
			if e, led := router.Leader(); led && e.LeaderID == next.id {
				break
			}
			runtime.Gosched()
		}
		noticed = append(noticed, time.Since(at))
		leader, next = next, leader
	}
	stop()
	wg.Wait()
	cancel()
	for _, s := range []*replica{a, b} {
		if err := s.campaign.Wait(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	router.Close()
	slices.Sort(noticed)
	t.Logf("%d hand-overs, %d requests answered; the router noticed %v after OnElected at the median, %v at most", rounds, l.Answered.Load(), noticed[len(noticed)/2], noticed[len(noticed)-1])
	if noticed[len(noticed)/2] > 10*time.Millisecond {
		t.Errorf("the router noticed late: %v at the median", noticed[len(noticed)/2])
	}
	l.Report(t)
}
