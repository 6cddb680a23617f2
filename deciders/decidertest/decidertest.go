// Package decidertest holds a store to the contract of
// leaderelection.RaceDecider and leaderelection.ChangeFeed, every sentence of
// it, one named subtest each. Whoever writes a decider runs it:
//
//	func TestConformance(t *testing.T) {
//		decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
//			bucket := freshBucket(t) // empty, and removed by t.Cleanup
//			return func() leaderelection.RaceDecider {
//				return mystore.NewDecider(newClient(t), bucket, "election", nil)
//			}
//		})
//	}
//
// Each call of the outer function makes a fresh, empty election; each call of
// the function it returns gives another handle on that election, as another
// process would have. Let each handle have a client of its own, where a client
// is cheap: what one client's connection puts in order, two do not.
//
// What matters most is tried hardest: that of many who write at once exactly one
// wins. Passing is evidence for that, not proof. A store under test must be
// healthy: faults are the campaign's business, and are not injected here.
//
// The suite registers no flags and waits by contexts and channels only, so it
// runs in the time the store takes. Run it with the race detector.
package decidertest

import (
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Options adapts the suite to what a store, or its emulator, can bear. The zero
// value is right for most.
type Options struct {
	// Rounds is how often a race is run, and how many records make a burst.
	// Zero: 20.
	Rounds int
	// Writers is how many compete in each race. Zero: 20.
	Writers int
	// CreateRounds is how often the race for the first record is run; each
	// takes a fresh election. Zero: 5.
	CreateRounds int
	// Patience is how long to wait for what the contract says will come,
	// before that counts as a failure. A store that keeps the contract is
	// never waited for that long. Zero: 30 s.
	Patience time.Duration
}

// Run runs the suite with the zero Options. Each subtest calls newElection for a
// fresh, empty election, and then the function it returns for one handle after
// another on that election. Where the handles are no leaderelection.ChangeFeed,
// there are no subtests of Changes, which is logged.
func Run(t *testing.T, newElection func(t testing.TB) func() leaderelection.RaceDecider) {
	t.Helper()
	Options{}.Run(t, newElection)
}

// Run is the function Run with these options.
func (o Options) Run(t *testing.T, newElection func(t testing.TB) func() leaderelection.RaceDecider) {
	t.Helper()
	o = o.withDefaults()
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			if g.name == "Changes" {
				d := newElection(t)()
				if _, ok := d.(leaderelection.ChangeFeed); !ok {
					t.Logf("%T is no leaderelection.ChangeFeed: candidates and observers poll this store", d)
					return
				}
			}
			for _, c := range g.checks {
				t.Run(c.name, func(t *testing.T) { c.run(newHarness(t, o, newElection)) })
			}
		})
	}
}

func (o Options) withDefaults() Options {
	if o.Rounds <= 0 {
		o.Rounds = 20
	}
	if o.Writers <= 1 {
		o.Writers = 20
	}
	if o.CreateRounds <= 0 {
		o.CreateRounds = 5
	}
	if o.Patience <= 0 {
		o.Patience = 30 * time.Second
	}
	return o
}

// group is the checks of one method or topic.
type group struct {
	name   string
	checks []check
}

// check is one subtest.
type check struct {
	name string
	run  func(h *harness)
}

// groups is the suite.
func groups() []group {
	return []group{
		{"ReadCurrent", readChecks()},
		{"WriteEntry", writeChecks()},
		{"Race", raceChecks()},
		{"Context", contextChecks()},
		{"Changes", feedChecks()},
	}
}
