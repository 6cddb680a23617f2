//go:build unix

package proc

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"
)

// nothing is what a guard must not report in a test: that would be followed by signals.
type nothing struct{ t *testing.T }

func (n nothing) Write(text []byte) (int, error) {
	n.t.Helper()
	n.t.Fatalf("the guard ends the command: %s", text)
	return 0, nil
}

// A guard whose time seems to be over, as when it was stopped, obeys what was ordered meanwhile
// before it judges: all of it, and with some time for it to be read.
func TestGuardHeedsWhatWasOrdered(t *testing.T) {
	const grace = time.Hour
	for name, until := range map[string]time.Duration{"the time is over": -time.Hour, "the grace has begun": grace / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &guard{orders: make(chan order), until: in(until), grace: grace, reports: json.NewEncoder(nothing{t})}
				over := make(chan struct{})
				go func() {
					for range 3 {
						time.Sleep(unread / 2)
						select {
						case g.orders <- order{}:
						case <-over:
						}
					}
					next := in(2 * grace)
					select {
					case g.orders <- order{Until: &next}:
					case <-over:
					}
				}()
				defer close(over)
				g.check()
				if g.ending || g.alone || g.until.Left() <= grace {
					t.Errorf("ending: %v, alone: %v, %v left", g.ending, g.alone, g.until.Left())
				}
			})
		})
	}
}

// Nothing is waited for if nothing is ordered, or if there is time; and who finds that the
// candidate is gone knows that it is alone, and has longer.
func TestGuardHeedsItsCandidatesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guard{orders: make(chan order), until: in(time.Hour), grace: time.Minute, reports: json.NewEncoder(nothing{t})}
		begun := time.Now()
		g.check()
		if took := time.Since(begun); took != 0 {
			t.Errorf("it waits %v for orders, and has time", took)
		}
		g.ending, g.killAt = true, in(time.Minute)
		g.until = in(time.Second) // in the grace
		g.check()
		if took := time.Since(begun); took != 0 {
			t.Errorf("it waits %v for orders, and has begun to end the command", took)
		}
		g.heed()
		if took := time.Since(begun); took != unread || g.alone {
			t.Errorf("it waits %v for orders, want %v; alone: %v", took, unread, g.alone)
		}
		close(g.orders)
		begun = time.Now()
		if g.heed(); !g.alone || time.Since(begun) != 0 {
			t.Errorf("alone: %v after %v", g.alone, time.Since(begun))
		}
	})
}
