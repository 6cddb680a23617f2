//go:build go1.25

package lehttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/shard"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// A request reaches its handler only while the process leads. Not when the view is over, even if the Status
// says otherwise: the process may just have been woken up, or its Status is Leading before its View is of
// that leadership. Each request is judged by the leadership under which it was begun: a process that leads
// again serves again.
func TestRequireLeaderServesOnlyWhileLeading(t *testing.T) {
	l, called := leading(), false
	h := lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		called = true
		_, _ = io.WriteString(w, "hello")
	}))
	for range 2 {
		for _, c := range []struct {
			name   string
			adjust func()
			serves bool
		}{
			{"leading", func() { lead(l) }, true},
			{"draining", func() { l.SetStatus(le.Draining) }, false},
			{"following", func() { l.SetStatus(le.Following); over(l) }, false},
			{"the view is over and nobody has noticed", func() { l.SetStatus(le.Leading) }, false},
		} {
			c.adjust()
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, "PURGE"} {
				called = false
				w := asked(h, httptest.NewRequest(method, "/", nil))
				switch {
				case called != c.serves:
					t.Errorf("%s, %s: the handler was called: %v", c.name, method, called)
				case c.serves && (w.Code != http.StatusOK || w.Body.String() != "hello"),
					!c.serves && (w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1"):
					t.Errorf("%s, %s: %d %q %v", c.name, method, w.Code, w.Body, w.Header())
				}
			}
		}
	}
}

func TestRefusalSaysWhenToComeBack(t *testing.T) {
	l := viewtest.NewCandidate(nil)
	for _, c := range []struct {
		entry le.RaceEntry
		want  string
	}{
		{le.RaceEntry{}, "1"},
		{record(1, "other"), "1"}, // it leads, or soon will
		{vacant(1), "1"},
		{le.RaceEntry{TermExpiry: time.Now().Add(3500 * time.Millisecond)}, "1"},                 // its own, and given up
		{le.RaceEntry{LeaderID: "me", TermExpiry: time.Now().Add(3500 * time.Millisecond)}, "5"}, // its own leadership: to TermExpiry + the default skew
	} {
		l.SetLeader(c.entry)
		w := asked(lehttp.RequireLeader(l, nil)(says("")), get())
		if got := w.Header().Get("Retry-After"); got != c.want {
			t.Errorf("%+v: Retry-After %q, want %q", c.entry, got, c.want)
		}
	}
}

// Otherwise can do with its ResponseWriter what it could without RequireLeader.
func TestOtherwiseHasAWholeResponseWriter(t *testing.T) {
	s := server(t, lehttp.RequireLeader(standby(), &lehttp.RequireOptions{Otherwise: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Error(err)
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "0\r\n\r\n") // the end of what Flush began
		_ = conn.Close()
	})})(says("never")))
	if res, body := ask(t, client(t), http.MethodGet, s.URL, nil); res.StatusCode != http.StatusOK || body != "" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// A standby passes on what its Otherwise says of an answer that was lost, and no refusal of another's.
func TestOtherwiseMarksLostAnswersOnly(t *testing.T) {
	const mark = "Leaderelection-Not-Leading"
	for said, want := range map[string]string{"lost": "lost", "refused": "", "refused; election=x": "refused; election=x"} {
		elsewhere := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(mark, said)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		w := asked(lehttp.RequireLeader(standby(), &lehttp.RequireOptions{Otherwise: elsewhere})(says("")), get())
		if got := w.Result().Header.Get(mark); got != want {
			t.Errorf("%q becomes %q, want %q", said, got, want)
		}
	}
}

// relay returns a handler that counts its calls, and passes each on to a service
// behind another election, which refuses it.
func relay(t *testing.T, calls *atomic.Int32, election string) http.Handler {
	t.Helper()
	service := server(t, lehttp.RequireLeader(standby(), &lehttp.RequireOptions{Election: election})(says("never")))
	target := must(url.Parse(service.URL))(t)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	pass := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		pass.ServeHTTP(w, r)
	})
}

// nothing owns no shard.
type nothing struct{}

func (nothing) Shard(string) (*shard.Owned, bool) { return nil, false }

// What a Proxy of the same election, or of the same group for the same shard, has sent a standby refuses
// itself, whatever its Otherwise would do. What another's has sent, or a client, goes there.
func TestAStandbyRefusesWhatAProxyKeeps(t *testing.T) {
	o := &lehttp.RequireOptions{Otherwise: says("elsewhere"), Election: "orders"}
	for own, c := range map[string]struct {
		h      http.Handler
		others []string
	}{
		"; election=orders":     {lehttp.RequireLeader(standby(), o)(says("never")), []string{"", "proxy", "proxy; election=users"}},
		"; election=orders%2F2": {lehttp.RequireOwner(nothing{}, byHeader, o)(says("never")), []string{"", "proxy; election=orders", "proxy; election=orders%2F3"}},
	} {
		for _, sent := range append(c.others, "proxy"+own) {
			r := post()
			r.Header.Set("Shard", "2")
			r.Header.Set("Leaderelection-Sent-By", sent)
			w, refused := asked(c.h, r), sent == "proxy"+own
			if mark := w.Header().Get("Leaderelection-Not-Leading"); (mark == "refused"+own) != refused || (w.Body.String() == "elsewhere") == refused {
				t.Errorf("sent by %q: %d %q, mark %q", sent, w.Code, w.Body, mark)
			}
		}
	}
}

// The mark of a refusal is RequireLeader's own, however little a handler says, and whatever is
// around it.
func TestNoHandlerMarksARefusal(t *testing.T) {
	const mark = "Leaderelection-Not-Leading"
	for name, say := range map[string]func(http.ResponseWriter){
		"nothing": func(http.ResponseWriter) {},
		"a text":  func(w http.ResponseWriter) { _, _ = io.WriteString(w, "no") },
		"503":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
	} {
		h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(mark, "refused")
			say(w)
		}))
		h = lehttp.RequireLeader(leading(), nil)(h)
		for around, h := range map[string]http.Handler{"bare": h, "with a timeout": http.TimeoutHandler(h, time.Hour, "")} {
			w := asked(h, post())
			if got := w.Result().Header.Get(mark); got != "" {
				t.Errorf("%s, %s: %d marked %q", name, around, w.Code, got)
			}
		}
	}
}

// What a Proxy says to the process it asks is not passed on by the handler there.
func TestTheProxysWordEndsAtTheLeader(t *testing.T) {
	said := "-"
	h := lehttp.RequireLeader(leading(), nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		said = r.Header.Get("Leaderelection-Sent-By")
	}))
	ask(t, client(t), http.MethodGet, frontOf(t, h, nil).URL, nil)
	if said != "" {
		t.Errorf("the handler has %q", said)
	}
}

// Whatever a handler does, nothing of its answer leaves once the view is over.
func TestAnswerIsThrownAwayWhenLeadershipIsLost(t *testing.T) {
	for name, handle := range map[string]func(w http.ResponseWriter, over func()){
		"nothing":    func(w http.ResponseWriter, over func()) { over() },
		"write":      func(w http.ResponseWriter, over func()) { _, _ = io.WriteString(w, "secret"); over() },
		"late write": func(w http.ResponseWriter, over func()) { over(); _, _ = io.WriteString(w, "secret") },
		"header":     func(w http.ResponseWriter, over func()) { w.WriteHeader(http.StatusCreated); over() },
		"large write": func(w http.ResponseWriter, over func()) {
			over()
			_, _ = io.WriteString(w, strings.Repeat("secret", 1000))
		},
		"small and large": func(w http.ResponseWriter, over func()) {
			_, _ = io.WriteString(w, "secret")
			over()
			if _, err := io.WriteString(w, strings.Repeat("secret", 1000)); !errors.Is(err, le.ErrNotLeading) {
				panic(fmt.Sprint("the handler was told ", err))
			}
			_, _ = io.WriteString(w, "secret")
		},
		"flush": func(w http.ResponseWriter, over func()) {
			_, _ = io.WriteString(w, "secret")
			over()
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, le.ErrNotLeading) {
				panic(fmt.Sprint("the handler was told ", err))
			}
		},
		"hijack": func(w http.ResponseWriter, over func()) {
			over()
			if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, le.ErrNotLeading) {
				panic(fmt.Sprint("the handler was told ", err))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := leading()
			h := lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Set-Cookie", "secret=1")
				handle(w, func() { over(l) })
			}))
			outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Request-Id", "7")
				h.ServeHTTP(w, r)
			})
			res, body := ask(t, client(t), http.MethodGet, server(t, outer).URL, nil)
			if res.StatusCode != http.StatusServiceUnavailable || strings.Contains(body, "secret") {
				t.Errorf("%d %q", res.StatusCode, body)
			}
			if res.Header.Get("Set-Cookie") != "" || res.Header.Get("X-Request-Id") != "7" || res.Header.Get("Retry-After") == "" {
				t.Errorf("header %v", res.Header)
			}
		})
	}
}

// A part has left already: the client must not take it for the whole, and the handler is told.
func TestAnswerIsBrokenOffWhenLeadershipIsLost(t *testing.T) {
	for name, handle := range map[string]func(w http.ResponseWriter) error{
		"write": func(w http.ResponseWriter) error { _, err := io.WriteString(w, "second"); return err },
		"flush": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
		"end":   func(http.ResponseWriter) error { return le.ErrNotLeading },
	} {
		l := leading()
		told := make(chan error, 1)
		s := server(t, lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "first ")
			_ = http.NewResponseController(w).Flush()
			over(l)
			told <- handle(w)
		})))
		res := must(client(t).Get(s.URL))(t)
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err == nil || string(body) != "first " {
			t.Errorf("%s: the client takes %q for complete (%v)", name, body, err)
		}
		if err := <-told; !errors.Is(err, le.ErrNotLeading) {
			t.Errorf("%s: the handler was told %v", name, err)
		}
	}
}

// Early hints are part of an answer: none leave when the view is over, nor a switch of protocols.
func TestNoPartOfAnAnswerLeavesLate(t *testing.T) {
	for _, code := range []int{http.StatusEarlyHints, http.StatusProcessing, http.StatusSwitchingProtocols} {
		l := leading()
		s := server(t, lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</secret>")
			if code != http.StatusSwitchingProtocols {
				over(l)
			}
			w.WriteHeader(code)
			over(l)
		})))
		var early atomic.Int32
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
			early.Add(1)
			return nil
		}})
		res, body := do(t, client(t), request(t, http.MethodGet, s.URL, nil).WithContext(ctx))
		if n := early.Load(); n != 0 || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Link") != "" {
			t.Errorf("%d: %d informational answers, then %s %v %q", code, n, res.Status, res.Header, body)
		}
	}
}

// An answer that is allowed arrives as it would without RequireLeader: with the header as it was when the
// handler said WriteHeader or wrote first, with trailers, and with the first status.
func TestAnswerPassesUnchanged(t *testing.T) {
	long := strings.Repeat("0123456789", 1000)
	for name, handle := range map[string]func(w http.ResponseWriter){
		"long": func(w http.ResponseWriter) {
			for i := 0; i < len(long); i += 100 {
				_, _ = io.WriteString(w, long[i:i+100])
			}
		},
		"created":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated); _, _ = io.WriteString(w, "made") },
		"empty":       func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		"early hints": func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); _, _ = io.WriteString(w, "after") },
		"written":     func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") },
		"none":        func(http.ResponseWriter) {},
		"two": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusTeapot)
		},
		"two, flushed": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			_ = http.NewResponseController(w).Flush()
			w.WriteHeader(http.StatusTeapot)
		},
	} {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Before", "1")
			h.Set("Trailer", "Sum")
			handle(w)
			h.Set("After", "2")
			h.Add("Before", "2")
			h.Set("Sum", "42")
			h.Set(http.TrailerPrefix+"Late", "43")
		})
		var said [2]string
		for i, h := range []http.Handler{h, lehttp.RequireLeader(leading(), nil)(h)} {
			s := httptest.NewUnstartedServer(h)
			s.Config.ErrorLog = log.New(io.Discard, "", 0) // it has the second status
			s.Start()
			res, body := ask(t, client(t), http.MethodGet, s.URL, nil)
			s.Close()
			res.Header.Del("Date")
			said[i] = fmt.Sprint(res.Status, res.ContentLength, res.Header, res.Trailer, body)
		}
		if said[0] != said[1] {
			t.Errorf("%s: %s\nwithout RequireLeader: %s", name, said[1], said[0])
		}
	}
}

// recorded is what a handler behind RequireLeader answers to a GET.
func recorded(l le.Candidate, handle http.HandlerFunc) *httptest.ResponseRecorder {
	return asked(lehttp.RequireLeader(l, nil)(handle), get())
}

// A handler that keeps its ResponseWriter beyond its return reaches nobody by it.
func TestAnswerKeptByItsHandler(t *testing.T) {
	var kept http.ResponseWriter
	w := recorded(leading(), func(w http.ResponseWriter, _ *http.Request) { kept = w; _, _ = io.WriteString(w, "own") })
	kept.WriteHeader(http.StatusTeapot)
	_, write := io.WriteString(kept, "kept")
	c := http.NewResponseController(kept)
	_, _, hijack := c.Hijack()
	if flush := c.Flush(); write == nil || hijack == nil || flush == nil || w.Code != http.StatusOK || w.Body.String() != "own" {
		t.Errorf("%v, %v, %v; %d %q", write, hijack, flush, w.Code, w.Body)
	}
}

// What was begun for a request ends with it.
func TestTheRequestsContextEndsWithIt(t *testing.T) {
	var kept context.Context
	recorded(leading(), func(_ http.ResponseWriter, r *http.Request) {
		kept = r.Context()
		if kept.Err() != nil || kept.Done() == nil {
			t.Error("it has ended already")
		}
	})
	if !errors.Is(kept.Err(), context.Canceled) || errors.Is(context.Cause(kept), le.ErrNotLeading) {
		t.Errorf("after the request: %v, %v", kept.Err(), context.Cause(kept))
	}
}

// A hijacked connection is closed instead of written to once the view is over. The ResponseWriter says that
// it was hijacked, before and after, and nothing is broken off: the connection is the handler's.
func TestHijackedConnectionIsGated(t *testing.T) {
	l := leading()
	wrote := make(chan error)
	s := server(t, lehttp.RequireLeader(l, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw := upgraded(t, w)
		defer conn.Close()
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			if line == "over\n" {
				over(l)
			}
			if _, err := io.WriteString(w, "late"); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("a write after Hijack, when told %q: %v", line, err)
			}
			_, err = io.WriteString(conn, line)
			wrote <- err
		}
	})))
	conn := upgrade(t, s)
	conn.say("hello\n")
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if line, err := conn.r.ReadString('\n'); line != "hello\n" {
		t.Fatal(line, err)
	}
	conn.say("over\n")
	if err := <-wrote; !errors.Is(err, le.ErrNotLeading) {
		t.Errorf("written after the end: %v", err)
	}
	if rest, _ := io.ReadAll(conn.r); len(rest) > 0 {
		t.Errorf("%q left the process after the end", rest)
	}
}

// campaigning is a candidate that leads a new election.
func campaigning(t *testing.T) (*le.Campaign, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := must(le.Config{Decider: memory.New(nil), LeaderID: "a", MaxClockSkew: S}.Start(ctx))(t)
	for !c.View().ValueInFuture() {
		time.Sleep(time.Millisecond)
	}
	return c, cancel
}

// A request that RequireLeader has admitted finishes under the lease, though the program has no lock,
// even if the handler begins late, panics, or has a safe method.
func TestAdmittedRequestsKeepTheLease(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, panics := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s panics=%v", method, panics), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, stop := campaigning(t)
					h := lehttp.RequireLeader(c, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						stop() // before it has done anything
						time.Sleep(10 * time.Second)
						if view := le.ViewFrom(r.Context()); !view.ValueInFuture() || r.Context().Err() != nil {
							t.Errorf("10 s after leadership began to be given up, may act: %v, ctx: %v", view.ValueInFuture(), context.Cause(r.Context()))
						}
						if panics {
							panic(http.ErrAbortHandler)
						}
						_, _ = io.WriteString(w, "done")
					}))
					w := httptest.NewRecorder()
					func() {
						defer func() {
							if p := recover(); p != nil && p != http.ErrAbortHandler {
								panic(p)
							}
						}()
						h.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
					}()
					if !panics && w.Body.String() != "done" {
						t.Errorf("%d %q", w.Code, w.Body)
					}
					begin := time.Now()
					<-c.Done()
					if took := time.Since(begin); took > time.Millisecond {
						t.Errorf("released %v after the request had returned", took)
					}
				})
			})
		}
	}
}

// While leadership is being given up nothing more is admitted, and a request that runs on for longer
// than DrainTimeout loses the lease, its ctx and its answer.
func TestAdmittedRequestOverrunsTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := campaigning(t)
		admitted := false
		var h http.Handler
		h = lehttp.RequireLeader(c, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if admitted {
				t.Error("a request was admitted while leadership was being given up")
				return
			}
			admitted = true
			begin := time.Now()
			stop()
			time.Sleep(time.Second)
			if second := asked(h, get()); second.Header().Get("Leaderelection-Not-Leading") != "refused" {
				t.Errorf("%d %q", second.Code, second.Body)
			}
			<-r.Context().Done()
			if took := time.Since(begin); took < le.DefaultTermLength || took > 2*le.DefaultTermLength+time.Second {
				t.Errorf("the ctx has ended after %v", took)
			}
			if cause := context.Cause(r.Context()); cause != le.ErrNotLeading {
				t.Error(cause)
			}
			_, _ = io.WriteString(w, "too late")
		}))
		w := asked(h, post())
		if w.Header().Get("Leaderelection-Not-Leading") != "lost" {
			t.Errorf("%d %q", w.Code, w.Body)
		}
		<-c.Done()
	})
}

// A stream does not hold up the next leader: its ctx ends, and what was hijacked is closed, within a
// second after leadership began to be given up. The lease is kept until the handler has returned.
func TestStreamsEndWhenLeadershipIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		begin  func(w http.ResponseWriter) (ended func(ctx context.Context))
		drains time.Duration
	}{
		"events": {http.MethodGet, func(w http.ResponseWriter) func(context.Context) {
			_, _ = io.WriteString(w, "event")
			_ = http.NewResponseController(w).Flush()
			return func(ctx context.Context) { <-ctx.Done() }
		}, time.Second},
		"hijacked": {http.MethodPost, func(w http.ResponseWriter) func(context.Context) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			return func(context.Context) {
				if _, err := io.Copy(io.Discard, conn); err == nil {
					panic("the client has ended it")
				}
				if _, err := conn.Write([]byte("x")); err == nil {
					panic("it may be written to")
				}
			}
		}, time.Second},
		"a flushed answer to POST": {http.MethodPost, func(w http.ResponseWriter) func(context.Context) {
			_ = http.NewResponseController(w).Flush()
			return func(ctx context.Context) {
				select {
				case <-ctx.Done():
					panic("the handler cannot finish")
				case <-time.After(15 * time.Second): // 5 s of them while leadership is being given up
				}
			}
		}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				campaign, stop := campaigning(t)
				begun, returned := make(chan struct{}), make(chan struct{})
				view := campaign.View()
				h := lehttp.RequireLeader(campaign, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(returned)
					ended := c.begin(w)
					close(begun)
					ended(r.Context())
					time.Sleep(time.Second)
					if !view.ValueInFuture() {
						t.Error("the lease was not kept until the handler had returned")
					}
				}))
				near, far := net.Pipe()
				defer far.Close()
				go h.ServeHTTP(&hijackable{httptest.NewRecorder(), near}, httptest.NewRequest(c.method, "/", nil))
				<-begun
				time.Sleep(10 * time.Second)
				select {
				case <-returned:
					t.Fatal("it has ended while its process leads")
				default:
				}
				begin := time.Now()
				stop()
				<-returned
				if took := time.Since(begin) - time.Second; took > c.drains {
					t.Errorf("it has ended after %v", took)
				}
				<-campaign.Done()
			})
		})
	}
}

// hijackable is a recorder whose connection can be taken.
type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// A handler has the view that it was let in with, even if its process leads again by then.
func TestTheHandlersViewIsItsOwn(t *testing.T) {
	l, called := viewtest.NewCandidate(nil), false
	l.Lead(1, time.Now().Add(time.Hour))
	first := l.View()
	w := recorded(l, func(_ http.ResponseWriter, r *http.Request) {
		called = true
		over(l)
		l.Lead(3, time.Now().Add(time.Hour))
		if v := le.ViewFrom(r.Context()); v != first || v.ValueInFuture() {
			t.Errorf("the handler has token %d, %v", v.ElectionNumber(), v.ValueInFuture())
		}
	})
	if !called || w.Header().Get("Leaderelection-Not-Leading") != "lost" {
		t.Errorf("called: %v; %d %q", called, w.Code, w.Body)
	}
}

// BenchmarkRequireLeader is what the middleware adds to a handler that does next to nothing: compare with bare.
func BenchmarkRequireLeader(b *testing.B) {
	for name, h := range map[string]http.Handler{"bare": says("hello"), "guarded": lehttp.RequireLeader(leading(), nil)(says("hello"))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				asked(h, get())
			}
		})
	}
}
