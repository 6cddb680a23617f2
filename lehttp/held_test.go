//go:build go1.25

package lehttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/lehttp"
)

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
			l.over()
			return lehttp.RequireLeader(l, &lehttp.RequireOptions{Otherwise: p, Election: "orders"})(says("never"))
		},
		"a proxy": func(p *lehttp.Proxy) http.Handler { return p },
	} {
		for size, body := range map[string]string{"short": "payload", "long": long} {
			t.Run(name+", "+size, func(t *testing.T) {
				var worked atomic.Int32
				next := server(t, counting(&worked))
				inner := lehttp.NewRouter(le.Config{MaxClockSkew: S})
				inner.News(vacant(1))
				p := inner.Proxy(&lehttp.ProxyOptions{Election: "orders", Wait: time.Minute})
				t.Cleanup(p.Close)
				second := server(t, between(p))
				outer := lehttp.NewRouter(le.Config{MaxClockSkew: S})
				outer.News(record(1, "b", address(second)))
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
			inner := lehttp.NewRouter(le.Config{MaxClockSkew: S})
			inner.News(vacant(1))
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
			outer := lehttp.NewRouter(le.Config{MaxClockSkew: S})
			outer.News(record(1, "b", address(second)))
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

// A request whose client has gone unseen, since its body has not been read, is carried out by nobody:
// it is not kept. (One whose body was read ends with its client.)
func TestWhoHasGoneIsNotServed(t *testing.T) {
	long := strings.Repeat("payload.", 300<<10/8)
	for name, request := range map[string]string{
		"long":      "Content-Length: 307200\r\n\r\n" + long,
		"chunked":   "Transfer-Encoding: chunked\r\n\r\n7\r\npayload\r\n0\r\n\r\n",
		"announced": "Expect: 100-continue\r\nContent-Length: 7\r\n\r\npayload",
		"short":     "Content-Length: 7\r\n\r\npayload",
	} {
		t.Run(name, func(t *testing.T) {
			var worked atomic.Int32
			next := server(t, counting(&worked))
			r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
			r.News(vacant(1))
			p := r.Proxy(&lehttp.ProxyOptions{Wait: time.Minute})
			t.Cleanup(p.Close)
			come, left := make(chan struct{}), make(chan struct{})
			front := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(come)
				p.ServeHTTP(w, r)
				close(left)
			}))
			conn := dial(t, front)
			conn.say("POST / HTTP/1.1\r\nHost: x\r\n%s", request)
			<-come
			_ = conn.Close()
			select {
			case <-left: // refused, or the Proxy has seen that the client is gone
			case <-time.After(20 * time.Second):
				r.News(record(2, "b", address(next)))
				<-left
				t.Errorf("it was kept, and %d requests were carried out for nobody", worked.Load())
			}
		})
	}
}

// The same in virtual time: what is streamed is refused at once, unless it came by HTTP/2, whose
// streams end with their clients; and it goes to the leader's next address while it is new.
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
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.MultiReader(strings.NewReader("payload")))
				if err != nil {
					t.Fatal(err)
				}
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

// What a Proxy says to the process it asks is not passed on by the handler there.
func TestTheProxysWordEndsAtTheLeader(t *testing.T) {
	said := "-"
	h := lehttp.RequireLeader(leading(), nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		said = r.Header.Get("Leaderelection-Sent-By")
	}))
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(record(1, "a", address(server(t, h))))
	ask(t, client(t), http.MethodGet, proxy(t, r, nil).URL, nil)
	if said != "" {
		t.Errorf("the handler has %q", said)
	}
}

// What a Proxy of the same election has sent a standby refuses itself, whatever its Otherwise would
// do; what another's has sent, or a client, goes there.
func TestAStandbyRefusesWhatAProxyKeeps(t *testing.T) {
	l := leading()
	l.over()
	l.status = le.Following
	h := lehttp.RequireLeader(l, &lehttp.RequireOptions{Otherwise: says("elsewhere"), Election: "orders"})(says("never"))
	for sent, refused := range map[string]bool{"": false, "proxy": false, "proxy; election=users": false, "proxy; election=orders": true} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Leaderelection-Sent-By", sent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if mark := w.Header().Get("Leaderelection-Not-Leading"); (mark == "refused; election=orders") != refused || (w.Body.String() == "elsewhere") == refused {
			t.Errorf("sent by %q: %d %q, mark %q", sent, w.Code, w.Body, mark)
		}
	}
}
