//go:build go1.25

package lehttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
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
	const uri = "/a%2Fb?a;b=1&c=%zz" // what a query means is the leader's to say
	for _, payload := range []string{"", "short", strings.Repeat("long", 100_000)} {
		res, text := ask(t, client(t), http.MethodPost, front.URL+uri, strings.NewReader(payload))
		if res.StatusCode != http.StatusCreated || text != "made" || res.Trailer.Get("Sum") != "42" {
			t.Errorf("%d %q %v", res.StatusCode, text, res.Trailer)
		}
		if got.RequestURI != uri || got.Host != address(front) || string(body) != payload {
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

// A request that RequireLeader refused goes on to the next leader, whatever its method and the election's
// name. One that reached the next leader before that knows that it leads is tried again there.
func TestProxyGoesOnWhenRefused(t *testing.T) {
	for election, method := range map[string]string{"": http.MethodGet, "a b/ü": http.MethodPost} {
		r, o := routerOf(), &lehttp.RequireOptions{Election: election}
		b := server(t, lehttp.RequireLeader(late(), o)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })))
		a := server(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			lehttp.RequireLeader(standby(), o)(says("from a")).ServeHTTP(w, req)
			r.News(record(2, "b", address(b)))
		}))
		r.News(record(1, "a", address(a)))
		front := proxy(t, r, &lehttp.ProxyOptions{Wait: time.Minute, Election: election})
		if res, body := ask(t, client(t), method, front.URL, strings.NewReader("payload")); body != "payload" {
			t.Errorf("%s: %d %q", method, res.StatusCode, body)
		}
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

// Only time that is the request's own makes a 504. A client whose body is too large, or breaks off, is told so.
func TestProxyFailures(t *testing.T) {
	sized := func(body io.Reader, n int64) *http.Request {
		r := httptest.NewRequest(http.MethodPut, "/", body)
		r.ContentLength = n
		return r
	}
	large := func(n int64) *http.Request {
		r := sized(strings.NewReader(strings.Repeat("x", 200_000)), n)
		r.Body = http.MaxBytesReader(nil, r.Body, 1000)
		return r
	}
	broken := iotest.ErrReader(io.ErrUnexpectedEOF)
	for name, c := range map[string]struct {
		r    *http.Request
		err  error // of the leader's transport, once it has read the body
		want int
	}{
		"the dial takes too long":         {get(), &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, http.StatusBadGateway},
		"the connection takes too long":   {get(), os.ErrDeadlineExceeded, http.StatusBadGateway},
		"the request takes too long":      {get(), context.DeadlineExceeded, http.StatusGatewayTimeout},
		"a large body, kept":              {large(50_000), nil, http.StatusRequestEntityTooLarge},
		"a large body, streamed":          {large(200_000), nil, http.StatusRequestEntityTooLarge},
		"a large body, of unknown length": {large(-1), nil, http.StatusRequestEntityTooLarge},
		"a body that breaks off":          {sized(broken, 10), nil, http.StatusBadRequest},
		"a stream that breaks off":        {sized(broken, 1<<20), nil, http.StatusBadRequest},
	} {
		p := routerOf(record(1, "a", "127.0.0.1:1")).Proxy(&lehttp.ProxyOptions{Wait: -1, Transport: proxyTransport(func(r *http.Request) (*http.Response, error) {
			if c.err != nil {
				return nil, c.err
			}
			_, err := io.Copy(io.Discard, r.Body)
			return nil, err
		})})
		if w := asked(p, c.r); w.Code != c.want {
			t.Errorf("%s: %d %q, want %d", name, w.Code, w.Body, c.want)
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
	// It knows itself by any of the Via lines. The version there is the client's.
	var via []string
	p := routerOf(record(1, "a", "a:1")).Proxy(&lehttp.ProxyOptions{Transport: proxyTransport(func(r *http.Request) (*http.Response, error) {
		via = r.Header["Via"]
		return answering(), nil
	})})
	req := get()
	req.Proto, req.Header["Via"] = "HTTP/1.0", []string{"1.1 other"}
	if asked(p, req); len(via) != 2 || !strings.HasPrefix(via[1], "1.0 lehttp-") {
		t.Errorf("Via %q", via)
	}
	req.Header["Via"] = append(via, "1.1 other")
	if w := asked(p, req); w.Code != http.StatusLoopDetected {
		t.Errorf("%d for what has been here", w.Code)
	}
}

// What is wrong with a leader's addresses is logged once for each leadership, and a mark
// of a refusal counts with its status alone, and does not reach the client.
func TestProxyComplainsOnce(t *testing.T) {
	var log logtest.Log
	r := routerOf()
	calls := 0
	p := r.Proxy(&lehttp.ProxyOptions{Wait: -1, Logger: logger(&log), Transport: proxyTransport(func(*http.Request) (*http.Response, error) {
		calls++
		res := answering()
		res.Header.Set("Leaderelection-Not-Leading", "refused")
		return res, nil
	})})
	for n := range uint64(2) {
		r.News(record(n+1, "a", "169.254.169.254:80"))
		for range 3 {
			asked(p, get())
		}
	}
	if n := strings.Count(log.String(), "hostPort="); n != 2 {
		t.Errorf("%d complaints in two leaderships:\n%s", n, log.String())
	}
	r.News(record(3, "b", "b:80"))
	if w := asked(p, post()); calls != 1 || w.Code != http.StatusOK || w.Header().Get("Leaderelection-Not-Leading") != "" {
		t.Errorf("%d calls, %d %v", calls, w.Code, w.Header())
	}
}

// What the leader flushes arrives before it has finished.
func TestProxyStreams(t *testing.T) {
	next := make(chan int)
	front := frontOf(t, lehttp.RequireLeader(leading(), nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range next {
			fmt.Fprintf(w, "line %d\n", i)
			_ = http.NewResponseController(w).Flush()
		}
	})), nil)
	go func() { next <- 0 }()
	res := must(client(t).Do(request(t, http.MethodGet, front.URL, nil)))(t)
	defer res.Body.Close()
	down := bufio.NewReader(res.Body)
	for i := range 3 {
		if line, err := down.ReadString('\n'); line != fmt.Sprintf("line %d\n", i) {
			t.Fatal(line, err)
		}
		next <- i + 1
	}
	close(next)
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

// An answer that was sent by its leader arrives whole, however slowly the client
// takes it, and whoever leads by then.
func TestProxyPassesOnWhatIsUnderWay(t *testing.T) {
	long := strings.Repeat("0123456789", 1<<17)
	r := routerOf(record(1, "a", address(server(t, says(long)))))
	res := must(client(t).Get(proxy(t, r, nil).URL))(t)
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

// No request is lost over hand-overs under load, and none is answered by a process that does not lead any
// more.
func TestHandoversUnderLoad(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	d := memory.NewDecider()
	elected := map[string]chan struct{}{"a": make(chan struct{}, 100), "b": make(chan struct{}, 100)}
	var campaigns []*le.Campaign
	for id := range elected {
		mux := http.NewServeMux()
		c := must(le.Config{
			Decider: d, LeaderID: id, HostPort: []string{address(server(t, mux))}, MaxClockSkew: S,
			OnElected: func(context.Context, *le.TimeView) { elected[id] <- struct{}{} },
		}.Start(ctx))(t)
		campaigns = append(campaigns, c)
		mux.Handle("/", lehttp.RequireLeader(c, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, uint64(le.ViewFrom(r.Context()).ElectionNumber()))
		})))
	}
	router := must(lehttp.Follow(le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S}))(t)
	front := proxy(t, router, nil)
	var l routetest.Load
	var over atomic.Bool
	var wg sync.WaitGroup
	for i := range 8 {
		c := client(t)
		wg.Go(func() {
			for !over.Load() {
				before, number := l.Greatest.Load(), uint64(0)
				_, text := ask(t, c, []string{http.MethodGet, http.MethodPost}[i%2], front.URL, strings.NewReader("payload"))
				if _, err := fmt.Sscan(text, &number); err != nil {
					l.Fault("%q", text)
				}
				l.Answer(before, number)
			}
		})
	}
	for i := range 20 {
		for l.Answered.Load() < int64(20+i*20) {
			runtime.Gosched() // let the load run between two hand-overs
		}
		next := map[string]string{"a": "b", "b": "a"}[d.Entry().LeaderID]
		for len(elected[next]) > 0 {
			<-elected[next] // of an earlier leadership
		}
		if err := le.Transfer(ctx, d, next); err != nil {
			t.Fatal(err)
		}
		<-elected[next]
	}
	over.Store(true)
	wg.Wait()
	stop()
	for _, c := range campaigns {
		<-c.Done()
	}
	router.Close()
	l.Report(t)
}
