//go:build go1.25

// Package overhttp holds elections of the real code over a store's real client, whose
// requests reach the store's server, or an imitation, in the same process and in virtual
// time. Seeds are the simulations of internal/test/sim, with faults on HTTP as well;
// Elections are scenarios; Disbelieves and NobodyLeads are about answers by something else
// than the server. It is for tests.
package overhttp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/sim"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// Store is a store whose client speaks HTTP.
type Store struct {
	// Serve makes a server that holds an empty election.
	Serve func() http.Handler
	// Decider makes a candidate's handle on it, with a client of its own that
	// sends its requests by http.
	Decider func(http *http.Client) leaderelection.RaceDecider
	// Place is what errors call the record's.
	Place string
	// Writes reports whether a request is a write.
	Writes func(*http.Request) bool
	// Busy are answers by which the store itself says that it is too busy, or
	// out of order for now.
	Busy map[string]httpfault.Fault
	// Blind are the httpfault.Lies, by name, that no client of this store can find out,
	// and why.
	Blind map[string]string
}

// Seeds simulates elections on the store s with the seeds 1 to n, a subtest each: to
// replay one, run the test with "/seed=17" behind its name. Each kind of fault must have
// happened in one of them. Under go test -short, only the first eight are tried.
func Seeds(t *testing.T, s Store, n int) {
	t.Helper()
	var mu sync.Mutex
	counts := map[string]int{}
	tried := n
	if testing.Short() {
		tried = 8
	}
	for seed := range uint64(tried) {
		t.Run(fmt.Sprintf("seed=%d", seed+1), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := s.simulate(seed + 1)
				if len(r.Violations) > 0 {
					t.Error(r)
				}
				mu.Lock()
				defer mu.Unlock()
				for what, n := range r.Counts {
					counts[what] += n
				}
				counts["seeds"]++
			})
		})
	}
	if counts["seeds"] < n {
		return // some were asked for
	}
	for what := range kinds {
		if counts["wire: "+what] == 0 {
			t.Errorf("in no seed has this happened: %s", what)
		}
	}
	t.Logf("%d acquisitions, %d extensions, %d releases; the first answer was damaged %d times", counts["acquisitions"], counts["extensions"], counts["releases"], counts["wire: the first answer was damaged"])
}

// simulate runs the simulation of a seed. The store has no feed.
func (s *Store) simulate(seed uint64) *sim.Result {
	p := sim.Draw(seed)
	p.Feed = false
	handler := s.Serve()
	return sim.Run(p, &server{s, handler, s.Decider(&http.Client{Transport: &httpfault.Transport{Handler: handler}})})
}

// server is one to which each machine has a connection of its own, on which the weather
// has its way. The judge looks at what the server holds.
type server struct {
	*Store
	handler http.Handler
	direct  leaderelection.RaceDecider // never fails
}

var _ sim.Wired = (*server)(nil)

// Wired says that faults lie below the clients.
func (*server) Wired() {}

// Current asks the server.
func (s *server) Current() (*leaderelection.RaceEntry, error) {
	return s.direct.ReadCurrent(context.Background())
}

// Decider returns a client of its own.
func (s *server) Decider(way *sim.Way) leaderelection.RaceDecider {
	watched := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Writes(r) {
			way.Change(r.Context(), func() { s.handler.ServeHTTP(w, r) })
		} else {
			s.handler.ServeHTTP(w, r)
		}
	})
	return s.Store.Decider(&http.Client{Transport: &httpfault.Transport{Handler: watched, Fault: func(*http.Request) httpfault.Fault { return s.draw(way) }}})
}

// kinds are what may happen to a request, by name: long is for how long at most.
var kinds = map[string]func(s *Store, rng *rand.Rand, long time.Duration) httpfault.Fault{
	"cut off": nil, // by the weather
	"the request lost": func(_ *Store, rng *rand.Rand, _ time.Duration) httpfault.Fault {
		return httpfault.Fault{LoseRequest: true, Silent: rng.IntN(2) == 0}
	},
	"the answer lost": func(_ *Store, rng *rand.Rand, _ time.Duration) httpfault.Fault {
		return httpfault.Fault{LoseAnswer: true, Silent: rng.IntN(2) == 0}
	},
	"late": func(_ *Store, rng *rand.Rand, long time.Duration) httpfault.Fault {
		return httpfault.Fault{Request: upTo(rng, long), Answer: upTo(rng, long)}
	},
	"a slow body": func(_ *Store, rng *rand.Rand, long time.Duration) httpfault.Fault {
		return httpfault.Fault{SlowBody: upTo(rng, long)}
	},
	"truncated": func(*Store, *rand.Rand, time.Duration) httpfault.Fault { return httpfault.Fault{Truncate: true} },
	"garbled":   func(*Store, *rand.Rand, time.Duration) httpfault.Fault { return httpfault.Fault{Garble: true} },
	"the store is busy": func(s *Store, rng *rand.Rand, _ time.Duration) httpfault.Fault {
		names := slices.Sorted(maps.Keys(s.Busy))
		if i := rng.IntN(len(names) + 1); i < len(names) {
			return s.Busy[names[i]]
		}
		return httpfault.Fault{Status: http.StatusServiceUnavailable}
	},
	"something on the way refuses": func(_ *Store, rng *rand.Rand, _ time.Duration) httpfault.Fault {
		return httpfault.Fault{
			Status: []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}[rng.IntN(4)],
			Header: http.Header{"Retry-After": {"1"}}, Body: "<html>not now",
		}
	},
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(max(d, 1))))
}

// draw says what happens to a request. No fault lasts longer than the weather does.
func (s *server) draw(way *sim.Way) (f httpfault.Fault) {
	name := ""
	way.Roll(func(rng *rand.Rand, x sim.Weather, calm, left time.Duration) {
		request, answer := 1+upTo(rng, calm/2), upTo(rng, calm/2)
		switch {
		case x.WireCut:
			name, f = "cut off", httpfault.Fault{LoseRequest: true, Silent: x.WireSilent}
		case rng.Float64() < x.Wire:
			names := slices.Sorted(maps.Keys(kinds))
			for kinds[name] == nil {
				name = names[rng.IntN(len(names))]
			}
			f = kinds[name](s.Store, rng, left/2)
		}
		f.Request, f.Answer = max(f.Request, request), max(f.Answer, answer)
	})
	if name != "" {
		way.Count(name)
	}
	return f
}

// DeafNobodyLeads holds a store's decider to not believing a server that only looks like
// the vendor's, and takes no notice of conditions: of two candidates there none ever leads,
// and each says why. Deafen takes one kind of condition off a request; each is tried by
// itself, in virtual time.
func DeafNobodyLeads(t *testing.T, s Store, deafen map[string]func(*http.Request)) {
	for name, deafen := range deafen {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := s.Serve()
				tr := &httpfault.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					deafen(r)
					server.ServeHTTP(w, r)
				})}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				var campaigns sync.WaitGroup
				for _, id := range []string{"a", "b"} {
					d := s.Decider(&http.Client{Transport: tr})
					campaigns.Go(func() {
						err := leaderelection.Config{
							Decider: d, LeaderID: id, TermLength: term, MaxClockSkew: skew,
							OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { t.Error(id, "leads"); <-ctx.Done() },
						}.Acquire(ctx)
						if err == nil {
							t.Error(id, "ended without an error")
						}
						if _, err := d.ReadCurrent(t.Context()); !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), "no notice of conditions") {
							t.Errorf("%s reads, and is told %v", id, err)
						}
					})
				}
				campaigns.Wait()
				time.Sleep(time.Hour) // for requests that are still under way
			})
		})
	}
}
