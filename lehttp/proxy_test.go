//go:build go1.25

package lehttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
	"github.com/c8e606e4/leaderelection/lehttp"
	"github.com/c8e606e4/leaderelection/viewtest"
)

func TestProxySendsToTheLeader(t *testing.T) {
	var got *http.Request
	var body []byte
	leader := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Trailer", "Sum")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "made")
		w.Header().Set("Sum", "42")
	}))
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", address(leader)))
	front := proxy(t, r, &lehttp.ProxyOptions{Rewrite: func(p *httputil.ProxyRequest) { p.Out.Header.Set("X-Extra", "1") }})
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
			r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
			r.News(c.entry)
			front := proxy(t, r, &lehttp.ProxyOptions{LeaderID: "me", Wait: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
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

// Requests that cannot be answered in time are not kept waiting.
func TestProxyDoesNotWaitInVain(t *testing.T) {
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	dead := record(1, "a", "nonsense")
	r.News(dead)
	front := proxy(t, r, &lehttp.ProxyOptions{Wait: time.Hour})
	res, _ := ask(t, client(t), http.MethodGet, front.URL, nil) // would wait for the hour
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Error(res.Status)
	}
}

func TestProxyWaitsForALeader(t *testing.T) {
	leader := server(t, says("hello"))
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(vacant(1))
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
			r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
			r.News(record(1, "a", breaking(t, func() { r.News(record(2, "b", address(next))) })))
			front := proxy(t, r, &lehttp.ProxyOptions{Wait: time.Minute})
			req, err := http.NewRequestWithContext(t.Context(), c.method, front.URL, c.body)
			if err != nil {
				t.Fatal(err)
			}
			if c.key != "" {
				req.Header.Set("Idempotency-Key", c.key)
			}
			res, err := client(t).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body)
			switch {
			case c.again && (string(text) != "from b" || c.body != nil && got != "payload"):
				t.Errorf("%d %q; the next leader got %q", res.StatusCode, text, got)
			case !c.again && res.StatusCode != http.StatusBadGateway:
				t.Errorf("%d %q, want 502", res.StatusCode, text)
			}
		})
	}
}

// Once means once: a second leader that breaks off too is told to the client.
func TestProxySendsAgainOnlyOnce(t *testing.T) {
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
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
			r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
			old, young := leading(), &late{after: 3}
			b := server(t, lehttp.RequireLeader(young, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			})))
			old.status = le.Draining
			a := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				lehttp.RequireLeader(old, nil)(says("from a")).ServeHTTP(w, req)
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

// late leads from the third time it is asked.
type late struct {
	mu    sync.Mutex
	after int
}

func (l *late) Status() le.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.after >= 0 {
		return le.Following
	}
	return le.Leading
}

func (l *late) Leader() le.RaceEntry { return le.RaceEntry{} }

func (l *late) View() *le.TimeView {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.after--; l.after >= 0 {
		return viewtest.New(nil, 0).TimeView
	}
	return leading().view.TimeView
}

func TestProxyRefusedToTheEnd(t *testing.T) {
	l := leading()
	l.status = le.Draining
	a := server(t, lehttp.RequireLeader(l, nil)(says("from a")))
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", address(a)))
	front := proxy(t, r, &lehttp.ProxyOptions{Wait: 30 * time.Millisecond})
	res, body := ask(t, client(t), http.MethodGet, front.URL, nil)
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "16" || !strings.Contains(body, "does not lead any more") {
		t.Errorf("%d %v %q", res.StatusCode, res.Header, body)
	}
}

func TestProxyTriesTheLeadersOtherAddresses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	_ = l.Close()
	leader := server(t, says("hello"))
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", "nonsense", closed, address(leader)))
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

func TestProxyLoop(t *testing.T) {
	var log bytes.Buffer
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	front := proxy(t, r, &lehttp.ProxyOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	other := lehttp.NewRouter(le.Config{MaxClockSkew: S})
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

// What the leader flushes arrives before it has finished, and what the client
// sends arrives before it has finished.
func TestProxyStreams(t *testing.T) {
	leader := server(t, lehttp.RequireLeader(leading(), nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := rc.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			fmt.Fprintf(w, "echo %s\n", lines.Text())
			_ = rc.Flush()
		}
	})))
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", address(leader)))
	front := proxy(t, r, &lehttp.ProxyOptions{FullDuplex: true})
	up, send := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, up)
	if err != nil {
		t.Fatal(err)
	}
	go fmt.Fprintln(send, "0")
	res, err := client(t).Do(req)
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
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil || r.Header.Get("Upgrade") != "websocket" {
			t.Error("not upgraded:", r.Header, err)
			return
		}
		defer c.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		for rw.Flush() == nil {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			if line == "over\n" {
				l.over()
			}
			fmt.Fprint(rw, "echo "+line)
		}
	})
	leader := server(t, lehttp.RequireLeader(l, nil)(echo))
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", address(leader)))
	front := proxy(t, r, nil)
	c, err := net.Dial("tcp", address(front))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", address(front))
	in := bufio.NewReader(c)
	answer, err := http.ReadResponse(in, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(answer, err)
	}
	for _, s := range []string{"one", "two"} {
		fmt.Fprintln(c, s)
		if line, err := in.ReadString('\n'); err != nil || line != "echo "+s+"\n" {
			t.Fatal(line, err)
		}
	}
	fmt.Fprintln(c, "over")
	if line, err := in.ReadString('\n'); err == nil {
		t.Errorf("a process that does not lead any more sent %q", line)
	}
}

// A client that goes away does not leave anything waiting.
func TestProxyClientGoesAway(t *testing.T) {
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
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
