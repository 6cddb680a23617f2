//go:build go1.25

package sim

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

var (
	seedCount = flag.Int("seeds", 1000, "how many seeds to simulate")
	firstSeed = flag.Uint64("first", 1, "the first of them")
	patience  = flag.Duration("patience", time.Minute, "how long one seed may take, by the wall clock")
	oneSeed   = flag.Int64("seed", -1, "simulate this seed only, and print its trace")
)

// tally sums up what the simulations of a test have counted.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
	failed bool
}

// enough reports whether one seed has failed and -failfast was given: those that wait
// in parallel are not run then either.
func (t *tally) enough() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed && flag.Lookup("test.failfast").Value.String() == "true"
}

func (t *tally) add(res *Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = t.failed || len(res.Violations) > 0
	for k, n := range res.Counts {
		if strings.HasPrefix(k, "most") {
			t.counts[k] = max(t.counts[k], n)
		} else {
			t.counts[k] += n
		}
	}
}

// watchdog ends the test if a simulation does not come to its end, as when a loop
// under test does not sleep: then virtual time stands still.
func watchdog(test string, seed uint64) (stop func()) {
	timer := time.AfterFunc(*patience, func() {
		panic(fmt.Sprintf("replay: go test ./internal/test/sim -run %s -seed %d\nhot loop: time has stood still for %v", test, seed, *patience))
	})
	return func() { timer.Stop() }
}

// TestSeeds simulates elections, each of ten virtual minutes or more.
func TestSeeds(t *testing.T) {
	counts := simulate(t, *seedCount, Draw)
	if t.Failed() {
		return
	}
	happened(t, counts, "fault: ", faults...)
	happened(t, counts, "ended: ", ends...)
	happened(t, counts, "", "acquisitions", "extensions", "releases", "requests", "acquisitions after another's hold", "ambushes", "clocks that said that they were off",
		"batch jobs", "acquisitions from the dead", "observed: record", "observed: lapse")
	for what := range counts {
		if name, is := strings.CutPrefix(what, "fault: "); is && !slices.Contains(faults, name) {
			t.Errorf("counted, but not on the list of what must happen: %s", name)
		}
	}
}

// TestWildClocks lets clocks go beyond their bound by up to ten terms, as when
// somebody sets one by hand. Two may lead then; but all else still holds: a view
// ends by the clocks it is measured by, numbers grow, callbacks keep their order,
// nothing spins or hangs, and there is one leader again when the clocks are right.
func TestWildClocks(t *testing.T) {
	simulate(t, *seedCount/5, func(seed uint64) Params {
		p := Draw(seed)
		p.Wild = 10 * p.Term
		p.Length *= 2 // its calm takes longer
		p.Stamp = 0   // nobody can know that a clock is wrong
		return p
	})
}

// TestSkewed has clocks beyond their bound, by up to hours and either way, and a
// store that gives true time to the microsecond, by which candidates find that
// out: no two views overlap by more than the time in which an answer was out, the
// candidates whose clocks are right still find a leader in time, and skewed candidates do not
// take the lease from it again and again.
func TestSkewed(t *testing.T) {
	counts := simulate(t, *seedCount/4, DrawSkewed)
	happened(t, counts, "", "clocks proved wrong", "ended: "+le.ErrClockSkew.Error(), "leases taken from honest leaders", "acquisitions", "extensions")
}

// TestSkewedBelieved shows that what TestSkewed finds is due to the comparison with
// the store's time: without it the same seeds do overlap, more than once in ten of them.
func TestSkewedBelieved(t *testing.T) {
	counts := simulate(t, *seedCount/5, func(seed uint64) Params {
		p := DrawSkewed(seed)
		p.Stamp = 0 // nothing shows that a clock is wrong
		return p
	})
	if n := counts["overlaps"]; n < *seedCount/50 && *oneSeed < 0 && *seedCount >= 500 { // of few seeds it says nothing
		t.Errorf("%d times only were two views beyond the bound at once", n)
	}
}

// TestUnsynchronized has candidates whose clocks are hours apart and stepped by hours,
// with monotonic clocks that run apart by as much as the allowance lets them, alone
// or mixed with others whose clocks keep their bound.
func TestUnsynchronized(t *testing.T) {
	counts := simulate(t, *seedCount/4, DrawUnsynchronized)
	happened(t, counts, "", "acquisitions", "extensions", "releases", "observed: lapse", "fault: a leader had its clock stepped", "fault: a leader was suspended past its view")
}

// TestStrangers has a record that others' tools delete, empty, make again and edit, and feeds that tell of
// what is undone, in whose place another record comes. Numbers are not given out again. Nobody takes an
// emptied record while the view of a former leader may be alive. A candidate that has heard of
// something else does not overwrite a request. There is a leader again in time.
func TestStrangers(t *testing.T) {
	counts := simulate(t, *seedCount/4, DrawStrangers)
	for _, what := range []string{"deleted", "emptied", "made anew", "edited"} {
		happened(t, counts, "fault: a stranger "+what, " the record", " the record under a leader")
	}
	happened(t, counts, "", "fault: another record took the order of one that was undone", "acquisitions over an emptied record", "acquisitions", "extensions")
}

// simulate runs the simulations of a test.
func simulate(t *testing.T, count int, draw func(seed uint64) Params) map[string]int {
	test, first := t.Name(), *firstSeed
	if *oneSeed >= 0 {
		first, count = uint64(*oneSeed), 1
	}
	sum := tally{counts: map[string]int{}}
	t.Run("all", func(t *testing.T) {
		for seed := first; seed < first+uint64(count); seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if sum.enough() {
					return
				}
				defer watchdog(test, seed)()
				synctest.Test(t, func(t *testing.T) {
					begin := time.Now()
					res := Run(draw(seed), nil)
					res.Counts["seconds of virtual time"] = int(time.Since(begin) / time.Second)
					sum.add(res)
					if len(res.Violations) > 0 {
						t.Errorf("replay: go test ./internal/test/sim -run %s -seed %d\n%v", test, seed, res)
					} else if *oneSeed >= 0 {
						t.Log(res)
					}
				})
			})
		}
	})
	for _, k := range slices.Sorted(maps.Keys(sum.counts)) {
		t.Logf("%9d %s", sum.counts[k], k)
	}
	return sum.counts
}

// A machine whose wall clock is compared with nobody's is suspended, and its clock is
// set back, in every order. What its readings show must end its view in time; only what
// happens between two looks, of which the second one shows nothing, cannot.
func TestSuspendedAndSetBack(t *testing.T) {
	for name, c := range map[string]struct {
		step, freeze, thaw time.Duration // since the last extension
	}{
		"set back, then suspended": {step: 2 * time.Second, freeze: 4 * time.Second, thaw: 9 * time.Second},
		"suspended, then set back": {step: 8 * time.Second, freeze: 2 * time.Second, thaw: 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(p *Params) { p.Unsynchronized, p.Apart = 2, time.Hour }, func(s *stage) {
				a, b := s.hosts[0], s.hosts[1]
				p := s.leads(a)
				b.launch()
				end := p.campaign.View().Get()
				s.until(s.Term, "a extends its lease", func() bool { return p.campaign.View().Get().After(end) })
				a.link.Set(Weather{LoseRequest: 1, Silent: 1, Until: time.Hour}, false)
				began := s.now()
				s.clear = time.Hour
				s.pass(min(c.step, c.freeze))
				for s.now()-began < 10*time.Second {
					switch s.now() - began {
					case c.step:
						a.clock.Step(-4500 * time.Millisecond)
					case c.freeze:
						a.freeze(true)
					case c.thaw:
						a.resume()
					}
					s.pass(time.Second)
				}
				s.until(2*s.Term, "b leads", func() bool { return b.proc.campaign.View().ValueInFuture() })
				s.pass(s.Term)
				a.link.Set(Weather{}, false)
				s.clear = s.now()
			})
		})
	}
}

// faults is everything that TestSeeds must have let go wrong, at a place where it
// matters: each has been counted under this name where it did.
var faults = []string{
	"a request was lost",
	"an answer was lost",
	"a call was lost without a word",
	"a call hung past its timeout",
	"a request arrived after its caller was told of its failure",
	"a request arrived after its caller had given it up",
	"a dead process's request arrived",
	"a client that tried again was refused what it had written",
	"a stale read",
	"a read from a replica that lags",
	"a call was refused as if for good",
	"an operator asked a dead leader to hand over",
	"a feed failed",
	"a feed fell silent",
	"a feed was late by more than a term",
	"a feed repeated itself",
	"a feed told of an earlier record",
	"a feed told of what was not committed",
	"a write was undone that feeds had told of",
	"a leader was frozen past its view",
	"a leader was suspended past its view",
	"a leader had its clock stepped",
	"a leader crashed",
	"a leader was told to stop",
	"a leader was told to resign",
	"a leader was sick",
	"a check of health came too late",
	"a leader's callbacks took longer than DrainTimeout",
	"a Trace or Logger got stuck",
	"a process started anew while its old lease ran",
	"two processes had one LeaderID",
	"the store was set back",
	"the store was set back under a leader",
	"the store was set back, and its record taken by one who did not know better",
	"a leader extended its leadership over a record that the store was set back to",
}

// ends is every way in which leaderships must have ended.
var ends = []string{
	"leaderelection: ousted: another candidate holds the record",
	"leaderelection: resigned",
	"leaderelection: stood down: not healthy",
	"leaderelection: the job is done",
	"leaderelection: the term ran out before an extension was confirmed",
	"sim: told to stop",
}

// happened fails the test if one of these has never been counted: seeds in which nothing goes wrong prove nothing.
func happened(t *testing.T, counts map[string]int, prefix string, what ...string) {
	for _, w := range what {
		if counts[prefix+w] == 0 && *oneSeed < 0 && *seedCount >= 1000 {
			t.Errorf("in no seed has this happened, or mattered: %s%s", prefix, w)
		}
	}
}

// Who was told late may have given the read up: what it makes of it is quiet at most, not for certain.
func TestJudgeDoubtsWhatCameLate(t *testing.T) {
	for _, late := range []bool{true, false} {
		r, a := &recorder{measuredWait: time.Minute}, &actor{clock: NewClock(time.Now(), 0, 0, 0, 1), proc: &process{settings: settings{term: 15 * time.Second}}}
		for _, n := range []le.ElectionNumber{2, 1, 3} {
			a.late = late && n == 1
			r.hears(a, &le.RaceEntry{LeaderID: "b", ElectionNumber: n}, wasRead)
		}
		if a.quiet < time.Minute || a.surely > 0 == late {
			t.Errorf("late: %v: quiet until %v at most, and %v at least", late, a.quiet, a.surely)
		}
	}
}
