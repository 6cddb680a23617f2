//go:build go1.25

package overhttp

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// What all candidates here have.
const (
	term = 15 * time.Second
	skew = time.Second
	span = term - skew // a view's, when it was just confirmed
)

// Elections holds a store's client to what an election needs of it, in virtual
// time: in calm weather each extension and each look is one request; and whatever
// goes wrong with HTTP for a while, a leader with time left keeps its leadership.
// What becomes of it when the store is gone, Seeds has.
func Elections(t *testing.T, s Store) {
	bubble := func(name string, f func(t *testing.T, s *trial)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, newTrial(t, &s)) }) })
	}
	t.Run("OneAttempt", s.oneAttempt)
	bubble("OneRequestEach", oneRequestEach)
	troubles := s.troubles()
	for _, name := range slices.Sorted(maps.Keys(troubles)) {
		bubble("Keeps/"+name, func(t *testing.T, tr *trial) { tr.keepsLeadership(t, troubles[name]) })
	}
}

// candidate is one of a trial's.
type candidate struct {
	id   string
	http *httpfault.Transport

	mu    sync.Mutex
	fault func(*http.Request) httpfault.Fault
	view  *leaderelection.TimeView
	ctx   context.Context // of its last leadership
	outs  int
}

// trial is a leader, "a", and a standby, "b".
type trial struct {
	store *Store
	a, b  *candidate
}

func newTrial(t *testing.T, s *Store) *trial {
	handler := s.Serve()
	tr := &trial{store: s}
	tr.a = tr.start(t, "a", handler)
	tr.await(t, func() bool { return tr.a.leads() }, term)
	tr.b = tr.start(t, "b", handler)
	return tr
}

func (tr *trial) start(t *testing.T, id string, handler http.Handler) *candidate {
	c := &candidate{id: id}
	c.http = &httpfault.Transport{Handler: handler, Fault: c.draw}
	cfg := leaderelection.Config{
		Decider: tr.store.Decider(&http.Client{Transport: c.http}), LeaderID: id,
		HostPort: []string{"10.0.0.1:443", "[fd00::1]:443"}, TermLength: term, MaxClockSkew: skew,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)).With("candidate", id),
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			c.mu.Lock()
			c.view, c.ctx = view, ctx
			c.mu.Unlock()
			<-ctx.Done()
		},
		OnOusting: func(context.Context) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.outs++
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	campaign, err := cfg.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.afflict(nil)
		cancel()
		if err := campaign.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s ended with %v", id, err)
		}
		time.Sleep(time.Hour) // for requests that are still under way
	})
	return c
}

func (c *candidate) draw(r *http.Request) httpfault.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault == nil {
		return httpfault.Fault{}
	}
	return c.fault(r)
}

// afflict changes what happens to the candidate's requests.
func (c *candidate) afflict(fault func(*http.Request) httpfault.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
}

func (c *candidate) leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view != nil && c.view.ValueInFuture()
}

func (c *candidate) leadership() (*leaderelection.TimeView, context.Context, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view, c.ctx, c.outs
}

// await fails where ok does not become true within d.
func (tr *trial) await(t *testing.T, ok func() bool, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after %v", d)
		}
	}
}

// oneAttempt: a call that fails has made one request, and one whose ctx ends
// returns then.
func (s *Store) oneAttempt(t *testing.T) {
	failures := map[string]httpfault.Fault{
		"Reset":       {LoseRequest: true},
		"AnswerLost":  {LoseAnswer: true},
		"Unavailable": {Status: http.StatusServiceUnavailable},
		"TooMany":     {Status: http.StatusTooManyRequests},
		"Silent":      {LoseRequest: true, Silent: true},
		"SlowBody":    {SlowBody: time.Hour, Status: http.StatusServiceUnavailable, Body: "<html>busy"},
	}
	maps.Copy(failures, s.Busy)
	for name, f := range failures {
		for what, call := range map[string]func(context.Context, leaderelection.RaceDecider) error{
			"Read": func(ctx context.Context, d leaderelection.RaceDecider) error {
				_, err := d.ReadCurrent(ctx)
				return err
			},
			"Write": func(ctx context.Context, d leaderelection.RaceDecider) error {
				_, err := d.WriteEntry(ctx, &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1})
				return err
			},
		} {
			t.Run(what+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tr := &httpfault.Transport{Handler: s.Serve(), Fault: func(*http.Request) httpfault.Fault { return f }}
					d := s.Decider(&http.Client{Transport: tr})
					const patience = 3 * time.Second
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					began := time.Now()
					err := call(ctx, d)
					if took := time.Since(began); took > patience || took > 0 && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("took %v: %v", took, err)
					}
					if err == nil || errors.Is(err, leaderelection.ErrPermanent) {
						t.Errorf("%v, want an error that may pass", err)
					}
					where := map[string]string{"Read": "reading ", "Write": "writing "}[what] + s.Place
					if errors.Is(err, leaderelection.ErrLostRace) {
						where = "lost the race for " + s.Place
					}
					if err != nil && !strings.Contains(err.Error(), where) {
						t.Errorf("%v: it does not say %q", err, where)
					}
					if tr.Sent() != 1 {
						t.Errorf("%d requests, want 1: %v", tr.Sent(), err)
					}
					time.Sleep(2 * time.Hour) // for what is still under way
				})
			})
		}
	}
}

func oneRequestEach(t *testing.T, tr *trial) {
	tr.await(t, func() bool { return tr.b.http.Sent() > 0 }, term)
	const long = 10 * time.Minute
	writes, looks := tr.a.http.Sent(), tr.b.http.Sent()
	time.Sleep(long)
	writes, looks = tr.a.http.Sent()-writes, tr.b.http.Sent()-looks
	if most := int(long/(span/2)) + 1; writes > most {
		t.Errorf("the leader sent %d requests in %v, want one for each extension: %d", writes, long, most)
	}
	if most := int(long/(term/2)) + int(long/term)/4; looks > most { // polling is jittered, by less than that
		t.Errorf("the standby sent %d requests in %v, want one for each look: %d", looks, long, most)
	}
	if _, _, outs := tr.a.leadership(); outs != 0 || !tr.a.leads() {
		t.Error("the leader did not stay")
	}
}

// trouble is what happens to the leader's requests; since is for how long it has
// been going on.
type trouble func(r *http.Request, since time.Duration) httpfault.Fault

// troubles is all that a leader must outlive.
func (s *Store) troubles() map[string]trouble {
	const attempt = term / 4
	on := func(f httpfault.Fault) trouble {
		return func(r *http.Request, _ time.Duration) httpfault.Fault {
			if s.Writes(r) {
				return f
			}
			return httpfault.Fault{}
		}
	}
	burst := func(f httpfault.Fault) trouble { // for two seconds in each five
		return func(_ *http.Request, since time.Duration) httpfault.Fault {
			if since%(5*time.Second) < 2*time.Second {
				return f
			}
			return httpfault.Fault{}
		}
	}
	all := map[string]trouble{
		"AnswersLost":         on(httpfault.Fault{LoseAnswer: true}),
		"AnswersLostSilently": on(httpfault.Fault{LoseAnswer: true, Silent: true}),
		"AnswersTooLate":      on(httpfault.Fault{Answer: attempt + time.Second}),
		"AnswersMuchTooLate":  on(httpfault.Fault{Answer: 3 * term}),
		"RequestsLate":        on(httpfault.Fault{Request: attempt / 2, Answer: attempt / 3}),
		"AnswersTruncated":    on(httpfault.Fault{Truncate: true}),
		"AnswersGarbled":      on(httpfault.Fault{Garble: true}),
		"SlowBodies":          func(*http.Request, time.Duration) httpfault.Fault { return httpfault.Fault{SlowBody: time.Second} },
		"BodiesTooSlow":       on(httpfault.Fault{SlowBody: term}),
		"CutMidRequest":       burst(httpfault.Fault{LoseRequest: true}),
		"CutMidAnswer":        burst(httpfault.Fault{LoseAnswer: true}),
		"Burst429":            burst(httpfault.Fault{Status: http.StatusTooManyRequests, Body: "<html>slow down"}),
		"Burst500":            burst(httpfault.Fault{Status: http.StatusInternalServerError}),
		"Burst502":            burst(httpfault.Fault{Status: http.StatusBadGateway, Body: "<html>bad gateway"}),
		"Burst503":            burst(httpfault.Fault{Status: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"120"}}}),
		"EverySecondWrite":    s.everySecond(httpfault.Fault{LoseRequest: true}),
	}
	for name, f := range s.Busy {
		all["Burst"+name] = burst(f)
	}
	return all
}

func (s *Store) everySecond(f httpfault.Fault) trouble {
	n := 0
	return func(r *http.Request, _ time.Duration) httpfault.Fault {
		if !s.Writes(r) {
			return httpfault.Fault{}
		}
		if n++; n%2 == 0 {
			return httpfault.Fault{}
		}
		return f
	}
}

// keepsLeadership lets trouble go on for two minutes.
func (tr *trial) keepsLeadership(t *testing.T, trouble trouble) {
	view, ctx, _ := tr.a.leadership()
	began := time.Now()
	tr.a.afflict(func(r *http.Request) httpfault.Fault { return trouble(r, time.Since(began)) })
	for time.Since(began) < 2*time.Minute {
		time.Sleep(50 * time.Millisecond)
		if !view.ValueInFuture() || ctx.Err() != nil {
			t.Fatalf("the leader lost its leadership after %v: %v", time.Since(began), context.Cause(ctx))
		}
	}
	tr.a.afflict(nil)
	time.Sleep(2 * term)
	if _, again, outs := tr.a.leadership(); again != ctx || outs != 0 || !view.ValueInFuture() {
		t.Errorf("the leader is of leadership %d, and was ousted %d times", view.ElectionNumber(), outs)
	}
}
