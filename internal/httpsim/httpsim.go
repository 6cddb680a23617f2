//go:build go1.25

// Package httpsim holds elections of the real code over a store's real client, by
// seed, in virtual time: several candidates with clocks apart, each with an HTTP
// connection of its own on which requests and answers are lost, late, refused,
// slow, cut short or garbled, while candidates are cut off, stopped and started
// again. It checks on true time that no two views are ever true at once, that
// fencing tokens only grow, that a leader's ctx ends with its view, and that in
// calm weather somebody leads and keeps leading. It is for tests.
package httpsim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
)

// Seeds simulates elections on the store s with the seeds 1 to n, a subtest each:
// to replay one, run the test with "/seed=17" behind its name.
func Seeds(t *testing.T, s httpfault.Store, n int) {
	t.Helper()
	for seed := range uint64(n) {
		t.Run(fmt.Sprintf("seed=%d", seed+1), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, s, seed+1) })
		})
	}
}

// world is one simulation. One goroutine runs it; the candidates' are their own.
type world struct {
	*testing.T
	store      httpfault.Store
	rng        *rand.Rand
	term, skew time.Duration
	server     http.Handler
	epoch      time.Time
	candidates []*candidate
	top        leaderelection.ElectionNumber // of the views that were ever in the future
	leader     *leadership
	log        []string
}

func simulate(t *testing.T, s httpfault.Store, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &world{T: t, store: s, rng: rng, server: s.Serve(), epoch: time.Now()}
	w.term = w.between(2*time.Second, 30*time.Second)
	w.skew = w.between(0, w.term/4)
	for i := range 2 + rng.IntN(3) {
		c := &candidate{w: w, id: string(rune('a' + i)), rng: rand.New(rand.NewPCG(seed, uint64(i+1)))}
		c.clock = clocks.NewOffset(nil, w.between(-w.skew, w.skew+1))
		c.http = &httpfault.Transport{Handler: w.server, Fault: c.draw}
		w.candidates = append(w.candidates, c)
		c.launch()
	}
	for range 4 {
		w.storm()
		w.calm()
	}
	w.finish()
	if t.Failed() {
		t.Logf("seed %d: TermLength %v, MaxClockSkew %v, %d candidates; the last events:\n%s", seed, w.term, w.skew, len(w.candidates), strings.Join(w.log[max(0, len(w.log)-100):], "\n"))
	}
}

func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.rng.Int64N(int64(max(b-a, 1))))
}

func (w *world) notef(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%12.6f ", time.Since(w.epoch).Seconds())+fmt.Sprintf(format, args...))
}

// storm lets all kinds of things go wrong for some terms.
func (w *world) storm() {
	for range 3 + w.rng.IntN(6) {
		c := w.candidates[w.rng.IntN(len(w.candidates))]
		switch w.rng.IntN(6) {
		case 0:
			w.notef("%s is cut off", c.id)
			c.set(weather{cut: true, silent: w.rng.IntN(2) == 0})
		case 1:
			w.notef("the store is gone")
			for _, c := range w.candidates {
				c.set(weather{cut: true, silent: w.rng.IntN(2) == 0})
			}
		case 2:
			w.notef("%s is stopped", c.id)
			c.stop()
		case 3:
			w.notef("%s is told to resign", c.id)
			ctx, cancel := context.WithCancel(w.Context())
			cancel()
			_ = c.campaign.Resign(ctx) // goes on by itself
		default:
			bad := w.rng.Float64() * 0.7
			w.notef("everybody's weather is bad: %.2f", bad)
			for _, c := range w.candidates {
				c.set(weather{bad: bad})
			}
		}
		w.pass(w.between(0, 2*w.term))
		for _, c := range w.candidates {
			c.revive()
		}
	}
}

// calm ends the storm: somebody must lead soon, and go on leading.
func (w *world) calm() {
	w.notef("calm")
	for _, c := range w.candidates {
		c.set(weather{})
		c.revive()
	}
	// What may be left of a term and of a reservation by another, with the
	// margins of skew; of the cooldown after resigning; of a call that hangs;
	// of a pause after failures; and until the next look.
	w.pass(4*w.term + 2*w.skew)
	if w.leader == nil {
		w.Errorf("nobody leads %v after the weather has become calm", 4*w.term+2*w.skew)
		return
	}
	first := w.leader
	w.pass(5 * w.term)
	if w.leader != first {
		w.Errorf("%v did not stay in calm weather, though nothing happened", first)
	}
}

// finish stops everybody: the record is vacant then.
func (w *world) finish() {
	for _, c := range w.candidates {
		c.stop()
	}
	e, err := w.store.Decider(&http.Client{Transport: &httpfault.Transport{Handler: w.server}}).ReadCurrent(w.Context())
	switch {
	case err != nil:
		w.Errorf("reading the record at last: %v", err)
	case !e.Vacant() || e.ElectionNumber < w.top:
		w.Errorf("at last the record is %+v, the greatest number was %d", e, w.top)
	}
	time.Sleep(time.Hour) // for requests that are still under way
}

// pass lets time pass, and looks at all views many times meanwhile.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && !w.Failed(); {
		time.Sleep(min(w.between(1, w.term/50), time.Until(end)))
		w.look()
	}
}

// look checks the promises at this moment of true time.
func (w *world) look() {
	w.leader = nil
	for _, c := range w.candidates {
		for _, r := range c.allLeaderships() {
			if !r.view.ValueInFuture() {
				r.over(w)
				continue
			}
			if w.leader != nil {
				w.Errorf("OVERLAP: the views of %v and of %v are both in the future", w.leader, r)
			}
			w.leader = r
			if number := r.view.ElectionNumber(); number < w.top {
				w.Errorf("%v is acted upon after election %d", r, w.top)
			} else if number > w.top {
				w.top = number
				w.notef("%v begins", r)
			}
		}
	}
}
