//go:build go1.25

package lehttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// serving is a server that Serve ends.
type serving struct {
	t        *testing.T
	pipes    *routetest.Pipes
	stop     context.CancelFunc // begins to end the campaign
	campaign campaign
	ended    chan error
}

// campaign is one that has ended when it is closed.
type campaign chan struct{}

func (c campaign) Done() <-chan struct{} { return c }

func (c campaign) Wait() error { <-c; return errCampaign }

var errCampaign = errors.New("the store refuses")

func serve(t *testing.T, h http.HandlerFunc, o *lehttp.ServeOptions) *serving {
	ctx, cancel := context.WithCancel(t.Context())
	s := &serving{t: t, pipes: routetest.NewPipes(), stop: cancel, campaign: make(campaign), ended: make(chan error, 1)}
	go func() {
		s.ended <- lehttp.Serve(ctx, s.campaign, &http.Server{Handler: h, ReadHeaderTimeout: time.Hour}, s.pipes, o)
	}()
	return s
}

func (s *serving) dial() *wire {
	s.t.Helper()
	c := must(s.pipes.Dial(context.Background()))(s.t)
	return &wire{c, bufio.NewReader(c)}
}

// asks makes a request, and returns whether the answer says that the connection is closed.
func (w *wire) asks(t *testing.T) (closes bool) {
	t.Helper()
	w.say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	res, text := w.answer(t)
	if text != "done" {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	return res.Close
}

// open reports whether the server has not closed the connection.
func (w *wire) open() bool {
	_ = w.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := w.r.ReadByte()
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func done(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }

// Serve ends a server in the order in which no request is lost.
func TestServeEndsInOrder(t *testing.T) {
	for name, o := range map[string]*lehttp.ServeOptions{"default": nil, "longer": {Linger: 10 * time.Second}, "none": {Linger: -1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lingers := 2 * time.Second
				if o != nil {
					lingers = max(o.Linger, 0)
				}
				s := serve(t, done, o)
				used, silent := s.dial(), s.dial()
				defer silent.Close()
				if used.asks(t) || silent.asks(t) {
					t.Error("a connection was closed while the campaign went on")
				}
				s.stop()
				time.Sleep(5 * time.Second)
				if !used.asks(t) || used.open() || !silent.open() {
					t.Error("while leadership is given up, an answer must close its connection, and no other")
				}
				time.Sleep(5 * time.Second)
				begin := time.Now()
				close(s.campaign)
				if lingers > 0 {
					time.Sleep(lingers - time.Second)
					if late := s.dial(); !late.asks(t) || !silent.open() {
						t.Error("after the release a request must be answered, and its connection closed, and no other")
					}
				}
				if err := <-s.ended; err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took < lingers || took > lingers+time.Second {
					t.Errorf("it has ended after %v, want %v", took, lingers)
				}
				if silent.open() {
					t.Error("a silent connection is open at the end")
				}
			})
		})
	}
}

// Requests under way are finished, for at most Finish. Their answers close their connections, too.
func TestServeFinishes(t *testing.T) {
	for takes, fails := range map[time.Duration]bool{5 * time.Second: false, time.Minute: true} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(takes)
				w.WriteHeader(http.StatusOK)
				done(w, r)
			}, nil)
			k := s.dial()
			defer k.Close()
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				if !fails {
					if !k.asks(t) {
						t.Error("the connection was not closed")
					}
					return
				}
				_, _ = io.WriteString(k, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
				if _, err := k.r.ReadByte(); err == nil {
					t.Error("it was answered")
				}
			}()
			time.Sleep(time.Second)
			s.stop()
			close(s.campaign)
			begin := time.Now()
			err := <-s.ended
			if took := time.Since(begin); (err != nil) != fails || took > 13*time.Second {
				t.Errorf("a request of %v: %v after %v", takes, err, took)
			}
			<-asked
			time.Sleep(time.Hour) // the handler
		})
	}
}

// If the campaign has ended by itself, its error is not lost.
func TestServeSaysWhyTheCampaignEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, done, nil)
		k := s.dial()
		close(s.campaign)
		synctest.Wait()
		if !k.asks(t) {
			t.Error("the connection is not closed")
		}
		if err := <-s.ended; err != errCampaign {
			t.Error(err)
		}
		s.stop()
	})
}

// A server that fails says so at once, and a handler can do all with its ResponseWriter that it could.
func TestServeFailsAndPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, done, nil)
		_ = s.pipes.Close()
		if err := <-s.ended; err == nil {
			t.Error("a listener has failed, and Serve says nothing")
		}
		s = serve(t, func(w http.ResponseWriter, r *http.Request) {
			if _, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("do")); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "ne")
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
		}, nil)
		k := s.dial()
		s.stop()
		if !k.asks(t) {
			t.Error("the connection is not closed")
		}
		s.pipes.Close()
		<-s.ended
	})
}

// probed is what a prober hears of h.
func probed(h http.Handler, method, path string) (int, string) {
	w := asked(h, httptest.NewRequest(method, path, nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// expectProbes checks the four.
func expectProbes(t *testing.T, when string, h http.Handler, livez, readyz, leader, standby bool) {
	t.Helper()
	for path, want := range map[string]bool{"/livez": livez, "/readyz": readyz, "/leader": leader, "/standby": standby} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
			code, why := probed(h, method, path)
			if (code == http.StatusOK) != want || !want && code != http.StatusServiceUnavailable {
				t.Errorf("%s: %s %s: %d %s", when, method, path, code, why)
			}
		}
	}
}

// A whole life: standing by, leading, the store gone, leaving off too slowly, standing by
// again, stopped.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const T = 15 * time.Second
		d := memory.NewDecider()
		d.Replace(&le.RaceEntry{LeaderID: "b", ElectionNumber: 1, TermLength: T, TermExpiry: time.Now().Add(T)})
		store := d.Handle()
		leave := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		campaign := must(le.Config{
			Decider: store, LeaderID: "a", TermLength: T, MaxClockSkew: S,
			OnElected: func(context.Context, *le.TimeView) { <-leave }, // heeds nothing
		}.Start(ctx))(t)
		h := lehttp.Probes(campaign, nil)
		synctest.Wait()
		expectProbes(t, "standing by", h, true, true, false, true)
		time.Sleep(T + 2*S)
		expectProbes(t, "leading", h, true, true, true, false)
		store.Inject(memory.LoseRequests())
		end := campaign.View().Get()
		time.Sleep(time.Until(end) + time.Second)
		expectProbes(t, "the store is gone, and leadership too", h, true, false, false, false)
		time.Sleep(T - 2*time.Second)
		expectProbes(t, "within the grace", h, true, false, false, false)
		time.Sleep(2 * time.Second)
		expectProbes(t, "a term later the work has not ended", h, false, false, false, false)
		close(leave)
		synctest.Wait()
		expectProbes(t, "it has ended", h, true, true, false, true)
		cancel()
		<-campaign.Done()
		expectProbes(t, "stopped", h, false, false, false, false)
		if code, _ := probed(h, "GET", "/"); code != http.StatusNotFound {
			t.Errorf("another path: %d", code)
		}
	})
}

// pinged is a Candidate whose loop answers, or not.
type pinged struct {
	*viewtest.Candidate
	now    atomic.Int32 // how many ask
	most   atomic.Int32
	answer func(context.Context) error
}

func (p *pinged) Ping(ctx context.Context) error {
	if n := p.now.Add(1); n > p.most.Load() {
		p.most.Store(n)
	}
	defer p.now.Add(-1)
	return p.answer(ctx)
}

// A loop that does not move fails the probe, and it alone; however many ask, it is asked
// once at a time.
func TestLiveOfALoopThatDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		c := &pinged{Candidate: leading(), answer: stuck}
		h := lehttp.Probes(c, nil)
		begin := time.Now()
		expectProbes(t, "stuck", h, false, true, true, false)
		if took := time.Since(begin); took != 3*500*time.Millisecond { // by three methods
			t.Errorf("it took %v", took)
		}
		for range 50 {
			go func() {
				if code, _ := probed(h, "GET", "/livez"); code != http.StatusServiceUnavailable {
					t.Errorf("one of many: %d", code)
				}
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := c.most.Load(); n != 1 {
			t.Errorf("of 50 probes at once %d asked the campaign", n)
		}
		c.answer = func(context.Context) error { return nil }
		expectProbes(t, "it moves", h, true, true, true, false)
	})
}

// Why a campaign is stuck is for the log: the store's error names a place, and anybody may ask. It is
// logged when the probe begins to fail, not with each request.
func TestLiveTellsNoNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const T, place = 15 * time.Second, "arn:aws:dynamodb:eu-west-1:123456789012:table/elections"
		store := memory.NewDecider().Handle()
		ctx, cancel := context.WithCancel(t.Context())
		campaign := must(le.Config{
			Decider: store, LeaderID: "a", TermLength: T, MaxClockSkew: S,
			OnElected: func(context.Context, *le.TimeView) {}, Logger: slog.New(slog.DiscardHandler),
		}.Start(ctx))(t)
		var text bytes.Buffer
		h := lehttp.Live(campaign, &lehttp.LiveOptions{Logger: logger(&text)})
		synctest.Wait()
		for range 2 {
			text.Reset()
			store.Inject(memory.Fail(fmt.Errorf("%s: %w", place, le.ErrPermanent)))
			time.Sleep(6 * T)
			for range 3 {
				code, why := probed(h, "GET", "/")
				if code != http.StatusServiceUnavailable || strings.Contains(why, "arn") || !strings.Contains(why, "log") {
					t.Errorf("%d %s", code, why)
				}
			}
			if n := strings.Count(text.String(), "\n"); n != 1 || !strings.Contains(text.String(), place) {
				t.Errorf("%d lines are logged:\n%s", n, text.String())
			}
			store.Inject(nil)
			time.Sleep(2 * T)
			if code, why := probed(h, "GET", "/"); code != http.StatusOK {
				t.Errorf("the store answers again: %d %s", code, why)
			}
		}
		cancel()
		<-campaign.Done()
	})
}

// What a liveness probe goes by: for how long the view has been over, and not who leads; a
// process that has never had a view is late for nothing. None of these leads.
func TestLiveGoesByTheViewsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			status le.Status
			over   time.Duration // since when the view is; negative: it never was
			term   time.Duration
			alive  bool
		}{
			"leads, and knows not that its view is over": {le.Leading, time.Minute, 15 * time.Second, false},
			"leaves off too slowly":                      {le.Draining, time.Minute, 15 * time.Second, false},
			"leaves off within its term":                 {le.Draining, time.Minute, time.Hour, true},
			"after a term that it does not know":         {le.Draining, 14 * time.Second, 0, true},
			"releases what it never led by":              {le.Draining, -1, 15 * time.Second, true},
			"stands by":                                  {le.Following, time.Minute, 15 * time.Second, true},
			"has stopped":                                {le.Stopped, -1, 15 * time.Second, false},
		} {
			l := viewtest.NewCandidate(nil)
			if c.over >= 0 {
				l.Lead(0, time.Now().Add(-c.over))
			}
			l.SetStatus(c.status)
			l.SetLeader(le.RaceEntry{TermLength: c.term})
			if code, why := probed(lehttp.Live(l, nil), "GET", "/"); (code == http.StatusOK) != c.alive {
				t.Errorf("%s: %d %s", name, code, why)
			}
			if w := asked(lehttp.Leader(l), get()); w.Code != http.StatusServiceUnavailable || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: it leads, by %d %v", name, w.Code, w.Header())
			}
		}
	})
}
