//go:build go1.25

package lehttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/lehttp"
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
	a, begun := &attempts{Router: lehttp.NewRouter(le.Config{MaxClockSkew: S})}, time.Now()
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

func get() *http.Request { return httptest.NewRequest(http.MethodGet, "/", nil) }

// A leader that refuses is asked again after pauses that double up to their most; one that takes no
// connection, more and more seldom.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attempting(time.Second, func(int, *http.Request) (*http.Response, error) { return refusing(), nil })
		a.News(record(1, "a", "a:1"))
		_, took := a.ask(get())
		var want []time.Duration
		for _, ms := range []time.Duration{2, 4, 8, 16, 32, 64, 100, 100, 100, 100, 100, 100, 100, 100} {
			want = append(want, ms*time.Millisecond) //nolint:durationcheck // ms is a number
		}
		if got := a.gaps(); took != time.Second || !slices.Equal(got[:len(want)], want) {
			t.Errorf("pauses %v, want %v; in all %v", got, want, took)
		}

		a = attempting(5*time.Second, func(int, *http.Request) (*http.Response, error) { return nil, gone })
		e := record(1, "a", "a:1")
		a.News(e)
		stop := make(chan struct{})
		go func() { // each extension wakes the request, and is no reason to dial
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
		a.ask(get())
		close(stop)
		gaps := a.gaps()
		if first, last := gaps[0], gaps[len(gaps)-1]; first < 50*time.Millisecond || first > 150*time.Millisecond || last < 500*time.Millisecond || last > 600*time.Millisecond {
			t.Errorf("dialled after %v", gaps)
		}
	})
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
	fail := func(n int, _ *http.Request) (*http.Response, error) {
		if n == 1 {
			return nil, gone
		}
		return answering(), nil
	}
	for name, run := range map[string]func(t *testing.T){
		"it answers": func(t *testing.T) {
			a := attempting(time.Second, fail)
			a.News(record(1, "a", "a:1"))
			if w, _ := a.ask(get()); w.Code != http.StatusOK {
				t.Error(w.Code)
			}
			again(t, a)
		},
		"another address": func(t *testing.T) {
			a := attempting(time.Millisecond, fail)
			e := record(1, "a", "a:1")
			a.News(e)
			a.ask(get())
			e.Extension, e.HostPort = 1, []string{"a:2"}
			a.News(e)
			again(t, a)
		},
		"another leader": func(t *testing.T) {
			a := attempting(time.Millisecond, fail)
			a.News(record(1, "a", "a:1"))
			a.ask(get())
			a.News(record(2, "b", "b:1"))
			again(t, a)
		},
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

// A request that may have been worked on is sent to nobody before the next leader is known, and
// one that is not idempotent to nobody at all: only a dial that failed shows that nobody has it.
func TestWhatMayHaveBeenWorkedOn(t *testing.T) {
	broken := &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}
	for name, c := range map[string]struct {
		method, key string
		hosts       []string
	}{
		"GET":                      {http.MethodGet, "", []string{"a:1", "b:1"}},
		"POST":                     {http.MethodPost, "", []string{"a:1"}},
		"POST with a key":          {http.MethodPost, "Idempotency-Key", []string{"a:1", "b:1"}},
		"POST with the other name": {http.MethodPost, "X-Idempotency-Key", []string{"a:1", "b:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var contexts []context.Context
				a := attempting(time.Minute, func(n int, r *http.Request) (*http.Response, error) {
					contexts = append(contexts, r.Context())
					if n == 1 {
						return nil, broken
					}
					return answering(), nil
				})
				a.News(record(1, "a", "a:1", "a:2"))
				time.AfterFunc(time.Second, func() { a.News(record(2, "b", "b:1")) })
				r := httptest.NewRequest(c.method, "/", strings.NewReader("payload"))
				if c.key != "" {
					r.Header.Set(c.key, "1")
				}
				w, took := a.ask(r)
				if again := len(c.hosts) > 1; !slices.Equal(a.hosts, c.hosts) || (w.Code == http.StatusOK) != again || again && took != time.Second {
					t.Errorf("%d from %v after %v, want of %v", w.Code, a.hosts, took, c.hosts)
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

// A leader that is hung is left also by a Transport that says only that it was cancelled.
func TestAHungLeaderIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := attempting(time.Minute, func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		a.News(record(1, "a", "a:1"))
		time.AfterFunc(time.Second, func() { a.News(record(2, "b", "b:1")) })
		w, took := a.ask(httptest.NewRequest(http.MethodPost, "/", strings.NewReader("payload")))
		if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "may have taken effect") || took != 2*time.Second {
			t.Errorf("%d %q after %v", w.Code, w.Body, took)
		}
	})
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

// A request that has been through this proxy is known by any of its Via lines; the version in its
// own is the client's.
func TestVia(t *testing.T) {
	via := ""
	a := attempting(time.Millisecond, func(_ int, r *http.Request) (*http.Response, error) {
		via = strings.Join(r.Header["Via"], ", ")
		return answering(), nil
	})
	a.News(record(1, "a", "a:1"))
	for want, minor := range map[string]int{"1.0 lehttp-": 0, "1.1 lehttp-": 1} {
		r := get()
		r.ProtoMinor = minor
		if a.ask(r); !strings.HasPrefix(via, want) {
			t.Errorf("Via %q, want %q", via, want)
		}
	}
	r := get()
	r.Header["Via"] = []string{"1.1 other", via}
	if w, _ := a.ask(r); w.Code != http.StatusLoopDetected || len(a.at) != 2 {
		t.Errorf("%d, sent %d times", w.Code, len(a.at))
	}
}
