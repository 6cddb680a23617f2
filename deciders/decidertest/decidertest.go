// Package decidertest holds a store to the contract of
// leaderelection.RaceDecider and leaderelection.ChangeFeed, every sentence of
// it, one named subtest each. The author of a decider runs it:
//
//	func TestConformance(t *testing.T) {
//		decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
//			bucket := freshBucket(t) // empty, and removed by t.Cleanup
//			return func() leaderelection.RaceDecider {
//				return mystore.NewDecider(newClient(t), bucket, "election", nil)
//			}
//		}, nil)
//	}
//
// Each call of the outer function makes a fresh, empty election; each call of
// the function it returns gives another handle on that election, as another
// process would have. Let each handle have a client of its own, if a client
// is cheap: what one client's connection puts in order, two do not.
//
// What matters most is tried hardest: that of many who write at once exactly one
// wins. Passing is evidence for that, not proof. A store under test must be
// healthy: faults are the campaign's business, and are not injected here.
//
// Two things it can try only with your help. Options.Address has other processes take part
// in a race: what holds by a lock of the process does not hold there. Options.Proxy has
// something on the way answer in place of the server. Use both if they fit your store.
//
// The suite registers no flags and waits by contexts and channels only, so it
// runs in the time the store takes. Run it with the race detector.
package decidertest

import (
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Options adapts the suite to what a store, or its emulator, tolerates. The zero
// value is right for most.
type Options struct {
	// Rounds is how often a race is run, and how many records make a burst. The race for
	// the first record, which takes a fresh election, is run a quarter as often. Zero: 20.
	Rounds int
	// Writers is how many compete in each race. Zero: 20.
	Writers int
	// Patience is how long to wait for what the contract says will come,
	// before that counts as a failure. A store that keeps the contract is
	// never waited for that long. Zero: 30 s.
	Patience time.Duration
	// Pause is how long a record is left alone before the suite looks whether it is
	// still there. The suite does the rest meanwhile. Make it longer than any time to live
	// that the store might give to a record. Zero: 1 s, which finds a time to live that is
	// taken from the record's term.
	Pause time.Duration
	// Address is where the election of d is, as Main's open takes it. With it child
	// processes take part in a race, so that a check under a lock of the process is found
	// out. Nil: there are no child processes.
	Address func(d leaderelection.RaceDecider) string
	// Proxy is for a store whose client takes an http.RoundTripper: give it to the client
	// of each handle. The suite then has it answer in place of the server. Nil: nothing is
	// answered in place of the server.
	Proxy *Proxy
}

// Run runs the suite. Each subtest calls newElection for a
// fresh, empty election, and then the function it returns for one handle after
// another on that election. If the handles are not a leaderelection.ChangeFeed,
// there are no subtests of Changes, which is logged. Opts may be nil.
func Run(t *testing.T, newElection func(t testing.TB) func() leaderelection.RaceDecider, opts *Options) {
	t.Helper()
	var o Options
	if opts != nil {
		o = *opts
	}
	o = o.withDefaults()
	look := leaveAlone(newHarness(t, o, newElection))
	for _, g := range o.groups() {
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
	t.Run("Pause/RecordIsStillThere", func(t *testing.T) { look(t) })
}

func (o Options) withDefaults() Options {
	if o.Rounds <= 0 {
		o.Rounds = 20
	}
	if o.Writers <= 1 {
		o.Writers = 20
	}
	if o.Patience <= 0 {
		o.Patience = 30 * time.Second
	}
	if o.Pause <= 0 {
		o.Pause = time.Second
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

// groups is the suite, but for what is looked at after a pause.
func (o Options) groups() []group {
	gs := []group{
		{"ReadCurrent", readChecks},
		{"WriteEntry", writeChecks},
		{"Race", raceChecks},
		{"Context", contextChecks},
		{"Changes", feedChecks},
	}
	if o.Address != nil {
		gs = append(gs, group{"Processes", []check{{"NoUpdateIsLost", processes}}})
	}
	if o.Proxy != nil {
		gs = append(gs, group{"Proxy", []check{{"IsNotBelieved", proxyNotBelieved}}})
	}
	return gs
}

// leaveAlone writes two records whose terms are over, one of them vacant, and returns what
// looks at them when the pause is over. A store that gives records a time to live, or
// that clears away what is over, has them no more: and has given up the fencing token's
// count.
func leaveAlone(h *harness) (look func(t testing.TB)) {
	held := h.state(7, 3)
	held.TermExpiry, held.TermLength, held.Hold = time.Now().Add(-time.Second), time.Millisecond, 0
	vacant := &leaderelection.RaceEntry{TermExpiry: held.TermExpiry, TermLength: held.TermLength, ElectionNumber: 7, Extension: 4, Incarnation: held.Incarnation}
	d, other := h.handle(), h.newElection(h.TB)()
	first := h.write(d, nil, held)
	second := h.write(other, h.write(other, nil, held), vacant)
	over := time.NewTimer(h.Pause)
	return func(t testing.TB) {
		h := *h
		h.TB = t
		<-over.C
		h.readBack(d, held)
		h.readBack(other, vacant)
		h.loses("with a nil Token, after a pause", other, nil, h.state(1, 0))
		h.write(d, first, h.state(8, 0))
		h.write(other, second, h.state(8, 0))
	}
}
