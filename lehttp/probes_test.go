//go:build go1.25

package lehttp_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/lehttp"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// probed is what a prober hears of h.
func probed(h http.Handler, method, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
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
		campaign, err := le.Config{
			Decider: store, LeaderID: "a", TermLength: T, MaxClockSkew: S,
			OnElected: func(context.Context, *le.TimeView) { <-leave }, // heeds nothing
		}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
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
		if code, why := probed(lehttp.Live(campaign, &lehttp.LiveOptions{Grace: time.Hour}), "GET", "/"); code != http.StatusOK {
			t.Errorf("within a Grace of an hour: %d %s", code, why)
		}
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
	*leads
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
		c := &pinged{leads: leading(), answer: stuck}
		h := lehttp.Probes(c, &lehttp.LiveOptions{Timeout: 2 * time.Second})
		begin := time.Now()
		expectProbes(t, "stuck", h, false, true, true, false)
		if took := time.Since(begin); took != 3*2*time.Second { // by three methods
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
		campaign, err := le.Config{
			Decider: store, LeaderID: "a", TermLength: T, MaxClockSkew: S,
			OnElected: func(context.Context, *le.TimeView) {}, Logger: slog.New(slog.DiscardHandler),
		}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		h := lehttp.Live(campaign, &lehttp.LiveOptions{Logger: slog.New(slog.NewTextHandler(&text, nil))})
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
// process that has never had a view is late for nothing.
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
			l := &leads{view: viewtest.New(nil, 0), status: c.status, entry: le.RaceEntry{TermLength: c.term}}
			if c.over >= 0 {
				l.view.Set(time.Now().Add(-c.over))
			}
			if code, why := probed(lehttp.Live(l, nil), "GET", "/"); (code == http.StatusOK) != c.alive {
				t.Errorf("%s: %d %s", name, code, why)
			}
		}
		stuck := &pinged{leads: leading(), answer: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }}
		begin := time.Now()
		if code, _ := probed(lehttp.Live(stuck, nil), "GET", "/"); code == http.StatusOK || time.Since(begin) != 500*time.Millisecond {
			t.Errorf("stuck: %d after %v", code, time.Since(begin))
		}
	})
}
