//go:build go1.25

package lehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// gone is what a dial returns that nobody takes.
var gone = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// refusing is a leader's answer that says that nobody has worked on a request.
func refusing() *http.Response {
	w := httptest.NewRecorder()
	w.Header().Set("Leaderelection-Not-Leading", "refused")
	w.WriteHeader(http.StatusServiceUnavailable)
	return w.Result()
}

func answering() *http.Response { return httptest.NewRecorder().Result() }

// attempts are the attempts of a Proxy, in virtual time: do answers each.
type attempts struct {
	*lehttp.Router
	proxy *lehttp.Proxy
	mu    sync.Mutex
	at    []time.Duration
	hosts []string
}

func attempting(wait time.Duration, do func(n int, r *http.Request) (*http.Response, error)) *attempts {
	a, begun := &attempts{Router: routerOf()}, time.Now()
	a.proxy = a.Proxy(&lehttp.ProxyOptions{Wait: wait, KeepBody: 7, Transport: proxyTransport(func(r *http.Request) (*http.Response, error) {
		a.mu.Lock()
		a.at, a.hosts = append(a.at, time.Since(begun)), append(a.hosts, r.URL.Host)
		n := len(a.at)
		a.mu.Unlock()
		return do(n, r)
	})})
	return a
}

// ask makes a request, and says how long that took.
func (a *attempts) ask(r *http.Request) (*httptest.ResponseRecorder, time.Duration) {
	w, begun := httptest.NewRecorder(), time.Now()
	a.proxy.ServeHTTP(w, r)
	return w, time.Since(begun)
}

func (a *attempts) gaps() (gaps []time.Duration) {
	for i := range a.at[1:] {
		gaps = append(gaps, a.at[i+1]-a.at[i])
	}
	return gaps
}

// A leader that refuses is asked again after pauses that double up to their most. One that takes no
// connection is dialled more and more seldom, however many requests wait, and whatever wakes them. They
// are told when to come back, and nobody's name.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attempting(time.Second, func(int, *http.Request) (*http.Response, error) { return refusing(), nil })
		a.News(record(1, "a", "a:1"))
		w, took := a.ask(get())
		var want []time.Duration
		for _, ms := range []time.Duration{2, 4, 8, 16, 32, 64, 100, 100, 100, 100, 100, 100, 100, 100} {
			want = append(want, ms*time.Millisecond) //nolint:durationcheck // ms is a number
		}
		if got := a.gaps(); took != time.Second || !slices.Equal(got[:len(want)], want) {
			t.Errorf("pauses %v, want %v; in all %v", got, want, took)
		}
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "15" || !strings.Contains(w.Body.String(), "does not lead any more") {
			t.Errorf("refused to the end: %d %v %q", w.Code, w.Header(), w.Body)
		}

		a = attempting(5*time.Second, func(int, *http.Request) (*http.Response, error) { return nil, gone })
		e := record(1, "leader-7", "a:1")
		a.News(e)
		stop := make(chan struct{})
		go func() { // each extension wakes the requests, and is no reason to dial
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					e.Extension++
					a.News(e)
				}
			}
		}()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				w, _ := a.ask(get())
				if w.Code != http.StatusBadGateway || w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "a:1") || strings.Contains(w.Body.String(), "leader-7") {
					t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
				}
			})
		}
		wg.Wait()
		close(stop)
		gaps := a.gaps()
		if first, last := gaps[0], gaps[len(gaps)-1]; first < 50*time.Millisecond || first > 150*time.Millisecond || last < 500*time.Millisecond || last > 600*time.Millisecond {
			t.Errorf("dialled after %v", gaps)
		}
	})
}

// If an address takes no connection, or a process behind it refuses that need not be the leader, the next
// one is tried, and then kept to.
func TestTheNextAddressIsTried(t *testing.T) {
	for name, first := range map[string]func() (*http.Response, error){
		"no connection": func() (*http.Response, error) { return nil, gone },
		"a refusal":     func() (*http.Response, error) { return refusing(), nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			a := attempting(time.Minute, func(_ int, r *http.Request) (*http.Response, error) {
				if r.URL.Host == "a:1" {
					return first()
				}
				return answering(), nil
			})
			a.News(record(1, "a", "nonsense", "a:1", "a:2"))
			for range 3 {
				if w, took := a.ask(httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))); w.Code != http.StatusOK || took != 0 {
					t.Errorf("%s: %d after %v", name, w.Code, took)
				}
			}
			if want := []string{"a:1", "a:2", "a:2", "a:2"}; !slices.Equal(a.hosts, want) {
				t.Errorf("%s: asked are %v, want %v", name, a.hosts, want)
			}
		})
	}
}

// What was found out of a leader's way is forgotten when it answers, has another address or is
// deposed; and neither a client that goes away nor an earlier leader has any part in it.
func TestTheWayIsFreeAtOnce(t *testing.T) {
	again := func(t *testing.T, a *attempts) {
		t.Helper()
		for range 2 {
			if w, took := a.ask(get()); w.Code != http.StatusOK || took != 0 {
				t.Errorf("%d after %v", w.Code, took)
			}
		}
	}
	changed := func(wait time.Duration, number uint64, extension uint64, hostPort string) func(t *testing.T) {
		return func(t *testing.T) {
			a := attempting(wait, func(n int, _ *http.Request) (*http.Response, error) {
				if n == 1 {
					return nil, gone
				}
				return answering(), nil
			})
			a.News(record(1, "a", "a:1"))
			a.ask(get())
			e := record(number, "a", hostPort)
			e.Extension = extension
			a.News(e)
			again(t, a)
		}
	}
	for name, run := range map[string]func(t *testing.T){
		"it answers":      changed(time.Second, 1, 0, "a:1"),
		"another address": changed(time.Millisecond, 1, 1, "a:2"),
		"another leader":  changed(time.Millisecond, 2, 0, "b:1"),
		"a client that goes away": func(t *testing.T) {
			a := attempting(time.Second, func(n int, r *http.Request) (*http.Response, error) {
				if n == 1 {
					<-r.Context().Done()
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: r.Context().Err()}
				}
				return answering(), nil
			})
			a.News(record(1, "a", "a:1", "a:2"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if a.ask(get().WithContext(ctx)); len(a.at) != 1 {
				t.Errorf("%d attempts for a client that is gone", len(a.at))
			}
			again(t, a)
		},
		"an earlier leader's late failure": func(t *testing.T) {
			a := attempting(time.Millisecond, func(n int, _ *http.Request) (*http.Response, error) {
				if n == 1 {
					time.Sleep(500 * time.Millisecond)
					return nil, gone
				}
				return answering(), nil
			})
			a.News(record(1, "a", "a:1"))
			over := make(chan struct{})
			go func() { defer close(over); a.ask(get()) }()
			time.Sleep(time.Millisecond)
			a.News(record(2, "b", "b:1"))
			again(t, a)
			<-over
			again(t, a)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
	}
}

// A request that may have been worked on is sent to nobody before the next leader is known, and then once.
// One that is not idempotent, or whose body was streamed, goes to nobody at all: only a dial that failed
// shows that nobody has it.
func TestWhatMayHaveBeenWorkedOn(t *testing.T) {
	broken := &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}
	for name, c := range map[string]struct {
		method, key string
		body        string
		breaks      int // that many leaders break off
		want        int // attempts
	}{
		"GET":                          {http.MethodGet, "", "", 1, 2},
		"PUT":                          {http.MethodPut, "", "payload", 1, 2},
		"DELETE":                       {http.MethodDelete, "", "", 1, 2},
		"POST":                         {http.MethodPost, "", "payload", 1, 1},
		"PATCH":                        {http.MethodPatch, "", "payload", 1, 1},
		"POST with a key":              {http.MethodPost, "Idempotency-Key", "payload", 1, 2},
		"POST with the other name":     {http.MethodPost, "X-Idempotency-Key", "payload", 1, 2},
		"PUT of a long body":           {http.MethodPut, "", "more than KeepBody", 1, 1},
		"GET, and the next breaks off": {http.MethodGet, "", "", 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var contexts []context.Context
				a := attempting(time.Minute, func(n int, r *http.Request) (*http.Response, error) {
					contexts = append(contexts, r.Context())
					if r.Body != nil {
						if text, err := io.ReadAll(r.Body); string(text) != c.body || err != nil {
							t.Errorf("attempt %d gets %q, %v", n, text, err)
						}
					}
					if n <= c.breaks {
						return nil, broken
					}
					return answering(), nil
				})
				a.News(record(1, "a", "a:1", "a:2"))
				time.AfterFunc(time.Second, func() { a.News(record(2, "b", "b:1")) })
				time.AfterFunc(2*time.Second, func() { a.News(record(3, "c", "c:1")) })
				r := httptest.NewRequest(c.method, "/", strings.NewReader(c.body))
				if c.key != "" {
					r.Header.Set(c.key, "1")
				}
				w, took := a.ask(r)
				code := http.StatusOK
				if c.want <= c.breaks {
					code = http.StatusBadGateway
				}
				if want := []string{"a:1", "b:1"}[:c.want]; !slices.Equal(a.hosts, want) || w.Code != code || took != time.Duration(c.want-1)*time.Second {
					t.Errorf("%d from %v after %v, want %d of %v", w.Code, a.hosts, took, code, want)
				}
				for i, ctx := range contexts {
					if ctx.Err() == nil {
						t.Errorf("attempt %d goes on", i+1)
					}
				}
			})
		})
	}
}

// A leader that is silent for a second after the next one is known is left, whether it owes an answer, the
// rest of one or news on a connection that was upgraded, and also by a Transport that says only that it was
// cancelled. What can be sent again goes to the next.
func TestAHungLeaderIsLeft(t *testing.T) {
	for method, code := range map[string]int{http.MethodGet: http.StatusOK, http.MethodPut: http.StatusOK, http.MethodPost: http.StatusBadGateway} {
		synctest.Test(t, func(t *testing.T) {
			a := attempting(time.Minute, func(n int, r *http.Request) (*http.Response, error) {
				if n > 1 {
					return answering(), nil
				}
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			a.News(record(1, "a", "a:1"))
			time.AfterFunc(time.Second, func() { a.News(record(2, "b", "b:1")) })
			w, took := a.ask(httptest.NewRequest(method, "/", strings.NewReader("payload")))
			if w.Code != code || took != 2*time.Second || code != http.StatusOK && !strings.Contains(w.Body.String(), "may have taken effect") {
				t.Errorf("%s: %d %q after %v", method, w.Code, w.Body, took)
			}
		})
	}
	for name, hung := range map[string]http.HandlerFunc{
		"a stream": func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"an upgraded connection": func(w http.ResponseWriter, _ *http.Request) {
			conn, rw := upgraded(t, w)
			defer conn.Close()
			_, _ = io.Copy(io.Discard, rw) // until it is closed
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			leader := routetest.NewPipes()
			server := &http.Server{Handler: hung, ReadHeaderTimeout: time.Hour}
			go func() { _ = server.Serve(leader) }()
			transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return leader.Dial(ctx) }}
			r := routerOf(record(1, "a", "a:1"))
			proxy := r.Proxy(&lehttp.ProxyOptions{Transport: transport})
			time.AfterFunc(time.Minute, func() { r.News(record(2, "b", "b:1")) })
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			req := get()
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "websocket")
			begin := time.Now()
			proxy.ServeHTTP(&hijackable{httptest.NewRecorder(), near}, req)
			if took := time.Since(begin); took != time.Minute+time.Second {
				t.Errorf("%s is left after %v", name, took)
			}
			_ = far.Close()
			transport.CloseIdleConnections()
			_ = server.Close()
		})
	}
}

// clientBody is a client's body that is streamed.
type clientBody struct {
	io.Reader
	reads  int
	closed bool
}

func (b *clientBody) Read(p []byte) (int, error) {
	if b.reads++; b.closed {
		return 0, errors.New("it is closed")
	}
	return b.Reader.Read(p)
}

func (b *clientBody) Close() error { b.closed = true; return nil }

// A body that is streamed goes to the next address while nobody has read of it, then only there,
// and to nobody else when somebody has.
func TestStreamedBodies(t *testing.T) {
	for name, c := range map[string]struct {
		reads bool // of the first, which refuses
		want  int
	}{"not read": {false, 2}, "read": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := &clientBody{Reader: strings.NewReader("payload")}
				var first io.ReadCloser
				got := ""
				a := attempting(time.Millisecond, func(n int, r *http.Request) (*http.Response, error) {
					if n == 1 {
						if first = r.Body; c.reads {
							_, _ = io.ReadFull(first, make([]byte, 3))
						}
						_ = first.Close()
						return refusing(), nil
					}
					if k, err := first.Read(make([]byte, 3)); k > 0 || err == nil {
						t.Errorf("the attempt before reads %d bytes more, %v", k, err)
					}
					text, _ := io.ReadAll(r.Body)
					got = string(text)
					return answering(), nil
				})
				a.News(record(1, "a", "a:1", "a:2"))
				r := httptest.NewRequest(http.MethodPost, "/", body)
				w, _ := a.ask(r)
				if len(a.hosts) != c.want || (w.Code == http.StatusOK) != (c.want == 2) || c.want == 2 && got != "payload" {
					t.Errorf("%d from %v, which got %q", w.Code, a.hosts, got)
				}
			})
		})
	}
}

// Which bodies are read before the leader is asked: those that are as long as KeepBody at most, and
// that the client does not wait to be asked for.
func TestWhichBodiesAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		body, expect string
		kept         bool
	}{"KeepBody": {"payload", "", true}, "longer": {"payloads", "", false}, "announced": {"payload", "100-continue", false}} {
		body := &clientBody{Reader: strings.NewReader(c.body)}
		a := attempting(time.Millisecond, func(_ int, r *http.Request) (*http.Response, error) {
			if (body.reads > 0) != c.kept || (r.GetBody != nil) != c.kept {
				t.Errorf("%s: read %d times, can be had again: %v", name, body.reads, r.GetBody != nil)
			}
			return answering(), nil
		})
		a.News(record(1, "a", "a:1"))
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.ContentLength = int64(len(c.body))
		r.Header.Set("Expect", c.expect)
		if w, _ := a.ask(r); w.Code != http.StatusOK {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// counting is a leader that counts the requests that it works on.
func counting(n *atomic.Int32) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			n.Add(1)
		}
	})
}

// What the first Proxy has answered is carried out by nobody later: the standby that it was sent
// to, with or without a Proxy of its own, refuses it at once, and does not keep it.
func TestOnlyTheFirstProxyWaits(t *testing.T) {
	long := strings.Repeat("payload.", 300<<10/8)
	for name, between := range map[string]func(p *lehttp.Proxy) http.Handler{
		"a standby": func(p *lehttp.Proxy) http.Handler {
			l := leading()
			over(l)
			return lehttp.RequireLeader(l, &lehttp.RequireOptions{Otherwise: p, Election: "orders"})(says("never"))
		},
		"a proxy": func(p *lehttp.Proxy) http.Handler { return p },
	} {
		for size, body := range map[string]string{"short": "payload", "long": long} {
			t.Run(name+", "+size, func(t *testing.T) {
				var worked atomic.Int32
				next := server(t, counting(&worked))
				inner := routerOf(vacant(1))
				p := inner.Proxy(&lehttp.ProxyOptions{Election: "orders", Wait: time.Minute})
				t.Cleanup(p.Close)
				second := server(t, between(p))
				outer := routerOf(record(1, "b", address(second)))
				front := proxy(t, outer, &lehttp.ProxyOptions{Election: "orders", Wait: 50 * time.Millisecond})
				res, text := ask(t, client(t), http.MethodPost, front.URL, strings.NewReader(body))
				if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Leaderelection-Not-Leading") != "" {
					t.Errorf("%d %q %v", res.StatusCode, text, res.Header)
				}
				inner.News(record(2, "c", address(next)))
				second.Close() // waits for what it serves
				if n := worked.Load(); n != 0 {
					t.Errorf("the next leader has worked on %d requests whose client was told %d", n, res.StatusCode)
				}
			})
		}
	}
}

// A Proxy that waits goes on when a Proxy behind it has refused; and one of another election
// keeps requests of its own.
func TestAProxyBehindAProxy(t *testing.T) {
	leader := server(t, says("hello"))
	for _, election := range []string{"orders", "users"} {
		t.Run(election, func(t *testing.T) {
			inner := routerOf(vacant(1))
			p := inner.Proxy(&lehttp.ProxyOptions{Election: election, Wait: time.Minute})
			t.Cleanup(p.Close)
			var asked atomic.Int32
			second := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch asked.Add(1) {
				case 1:
					if election != "orders" {
						time.AfterFunc(time.Millisecond, func() { inner.News(record(2, "c", address(leader))) })
					}
				case 2:
					inner.News(record(2, "c", address(leader)))
				}
				p.ServeHTTP(w, r)
			}))
			outer := routerOf(record(1, "b", address(second)))
			front := proxy(t, outer, &lehttp.ProxyOptions{Election: "orders", Wait: time.Minute})
			if res, text := ask(t, client(t), http.MethodPost, front.URL, strings.NewReader("x")); text != "hello" {
				t.Errorf("%d %q", res.StatusCode, text)
			}
			if n := asked.Load(); (n > 1) != (election == "orders") {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// A request that waits ends with its client: nobody carries it out later.
func TestWhoHasGoneIsNotServed(t *testing.T) {
	var worked atomic.Int32
	next := server(t, counting(&worked))
	r := routerOf(vacant(1))
	p := r.Proxy(&lehttp.ProxyOptions{Wait: time.Hour})
	t.Cleanup(p.Close)
	come, left := make(chan struct{}), make(chan struct{})
	conn := dial(t, server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(come)
		p.ServeHTTP(w, r)
		close(left)
	})))
	conn.say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\npayload")
	<-come
	_ = conn.Close()
	<-left
	r.News(record(2, "b", address(next)))
	if n := worked.Load(); n != 0 {
		t.Errorf("%d requests were carried out for nobody", n)
	}
}

// On HTTP/1 a client that goes away is not noticed before its body was read. So what is streamed is refused
// at once, unless it came by HTTP/2, whose streams end with their clients. It goes to the leader's next
// address while it is new.
func TestWhatIsStreamedDoesNotWait(t *testing.T) {
	for name, c := range map[string]struct {
		major int
		dial  time.Duration // until the first address has failed
		led   bool
		want  int
		took  time.Duration
		hosts int
	}{
		"no leader":                       {1, 0, false, http.StatusServiceUnavailable, 0, 0},
		"no leader, HTTP/2":               {2, 0, false, http.StatusOK, time.Second, 1},
		"the first address fails":         {1, 900 * time.Millisecond, true, http.StatusOK, 900 * time.Millisecond, 2},
		"it fails late":                   {1, 2 * time.Second, true, http.StatusBadGateway, 2 * time.Second, 1},
		"it fails late, and HTTP/2 waits": {2, 2 * time.Second, true, http.StatusOK, 2 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := attempting(time.Minute, func(_ int, r *http.Request) (*http.Response, error) {
					if r.URL.Host == "a:1" {
						time.Sleep(c.dial)
						return nil, gone
					}
					return answering(), nil
				})
				if c.led {
					a.News(record(1, "a", "a:1", "a:2"))
				} else {
					a.News(vacant(1))
					time.AfterFunc(time.Second, func() { a.News(record(2, "b", "b:1")) })
				}
				r := request(t, http.MethodPost, "/", io.MultiReader(strings.NewReader("payload")))
				r.ContentLength, r.ProtoMajor = -1, c.major
				w, took := a.ask(r)
				if w.Code != c.want || took != c.took || len(a.hosts) != c.hosts {
					t.Errorf("%d after %v by %v", w.Code, took, a.hosts)
				}
				time.Sleep(time.Minute)
				if len(a.hosts) != c.hosts {
					t.Errorf("sent later: %v", a.hosts)
				}
			})
		})
	}
}

// A request that a standby keeps is served by it if it is the standby that wins.
func TestKeptRequestIsServedByTheStandbyThatWins(t *testing.T) {
	for _, payload := range []string{"", "payload"} {
		t.Run(fmt.Sprintf("body %q", payload), func(t *testing.T) {
			me := viewtest.NewCandidate(nil)
			r := routerOf(vacant(1))
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
				lead(me)
			}()
			res, got := ask(t, client(t), http.MethodPost, front.URL+"/?a;b", strings.NewReader(payload))
			if res.StatusCode != http.StatusOK || got != payload || via != "" || query != "a;b" {
				t.Errorf("%d %q; as the handler sees it: %q, %q", res.StatusCode, got, via, query)
			}
		})
	}
}

// One that comes home when leadership is lost again is refused, and not kept anew.
func TestKeptRequestComesHomeOnce(t *testing.T) {
	gate := &looked{Candidate: viewtest.NewCandidate(nil), when: func(l *viewtest.Candidate, n int32) {
		if lead(l); n != 2 { // it leads only when it is asked for the second time
			over(l)
		}
	}}
	r := routerOf(record(1, "me", nobody(t)))
	p := r.Proxy(&lehttp.ProxyOptions{LeaderID: "me", Wait: time.Minute})
	defer p.Close()
	called := false
	h := lehttp.RequireLeader(gate, &lehttp.RequireOptions{Otherwise: p})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }))
	if w := asked(h, post()); w.Code != http.StatusServiceUnavailable || called {
		t.Errorf("%d %q, the handler was called: %v", w.Code, w.Body, called)
	}
}

// early answers a POST before it has read its body, and counts requests that nobody has made.
type early struct {
	status   int
	smuggled atomic.Int32
}

func (e *early) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/smuggled" {
		e.smuggled.Add(1)
		return
	}
	_ = http.NewResponseController(w).EnableFullDuplex() // so that it does not wait for the client
	w.Header().Set("Connection", "close")
	w.WriteHeader(e.status)
	_, _ = io.WriteString(w, "early")
}

// What is left of a body when the answer begins is no request, nor if that answer is thrown away.
func TestNoPartOfABodyIsARequest(t *testing.T) {
	const inside = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, c := range map[string]struct {
		header string
		status int
		lost   bool // the answer is thrown away by a RequireLeader before the Proxy
	}{
		"chunked":            {"Transfer-Encoding: chunked", http.StatusUnauthorized, false},
		"long":               {"Content-Length: 1048576", http.StatusServiceUnavailable, false},
		"answer thrown away": {"Transfer-Encoding: chunked", http.StatusUnauthorized, true},
	} {
		t.Run(name, func(t *testing.T) {
			leader := &early{status: c.status}
			r := routerOf(record(1, "a", address(server(t, leader))))
			p := r.Proxy(nil)
			t.Cleanup(p.Close)
			var h http.Handler = p
			l := leading()
			if c.lost {
				h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					p.ServeHTTP(w, r)
					if r.Method == http.MethodPost {
						over(l)
					}
				})
				h = lehttp.RequireLeader(l, nil)(h)
			}
			var smuggled atomic.Int32
			front := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					smuggled.Add(1)
				}
				h.ServeHTTP(w, r)
			}))
			conn := dial(t, front)
			conn.say("POST / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", c.header)
			rest := strings.Repeat(inside, 1<<20/len(inside)) // more than net/http reads on for
			rest += strings.Repeat(" ", 1<<20-len(rest))
			if strings.Contains(c.header, "chunked") {
				conn.say("100000\r\n")
				rest += "\r\n0\r\n\r\n"
			}
			// A client that does not wait for the answer, and may have its connection reset under it.
			conn.say("%s", rest)
			_ = conn.Conn.(*net.TCPConn).CloseWrite()
			_, _ = conn.r.WriteTo(io.Discard)
			_ = conn.Close()
			front.Close() // waits for what it serves
			if n, m := smuggled.Load(), leader.smuggled.Load(); n+m > 0 {
				t.Errorf("%d requests that nobody has made were served, %d by the leader", n, m)
			}
		})
	}
}

// Whatever bytes a client sends, no handler panics, and the leader gets no request that the Proxy did not get.
func FuzzProxy(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /a?b HTTP/1.0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, Host\r\nUpgrade: websocket\r\n\r\n",
		"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nLeaderelection-Sent-By: proxy\r\nLeaderelection-Not-Leading: refused\r\n\r\n",
		"PUT //x/%2f HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	var came atomic.Int64
	var fault atomic.Pointer[string]
	failed := func(format string, args ...any) { text := fmt.Sprintf(format, args...); fault.Store(&text) }
	var mu sync.Mutex
	seen := map[string]bool{}
	leader := server(f, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		id := strings.Join(r.Header["Id-Of-The-Front"], ",")
		if known := seen[id]; !known {
			failed("the leader got %s %s, which the Proxy did not get (%q)", r.Method, r.RequestURI, id)
		}
		delete(seen, id)
		mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "done")
	}))
	r := routerOf()
	e := record(1, "a", address(leader))
	e.TermExpiry = time.Now().Add(24 * time.Hour)
	r.News(e)
	p := r.Proxy(nil)
	f.Cleanup(p.Close)
	front := address(server(f, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if x := recover(); x != nil {
				if x != http.ErrAbortHandler { // as net/http compares it
					failed("a panic: %v", x)
				}
				panic(http.ErrAbortHandler)
			}
		}()
		id := fmt.Sprint(came.Add(1))
		r.Header["Id-Of-The-Front"] = []string{id} // in the place of a client's
		mu.Lock()
		seen[id] = true
		mu.Unlock()
		p.ServeHTTP(w, r)
	})))
	f.Fuzz(func(t *testing.T, bytes []byte) {
		c := must(net.Dial("tcp", front))(t)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = c.Write(bytes)
		_ = c.(*net.TCPConn).CloseWrite() //nolint:forcetypeassert // of tcp
		_, _ = io.Copy(io.Discard, c)
		if text := fault.Swap(nil); text != nil {
			t.Fatal(*text)
		}
	})
}
