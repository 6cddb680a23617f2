//go:build unix

package proc

import (
	"bytes"
	"encoding/json"
	"strings"
	"syscall"
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

// The number of a process that there is not: the greatest is less.
const noProcess = 1<<22 + 1

// Asked to end again, a guard only ends earlier; and it looks when the first of its times comes.
func TestGuardEndsEarlierOnly(t *testing.T) {
	within := func(what string, d Deadline, most time.Duration) {
		t.Helper()
		if left := d.Left(); left > most || left < most-time.Minute {
			t.Errorf("%s: in %v, want %v", what, left, most)
		}
	}
	const none = syscall.Signal(0) // reaches nobody
	g := &guard{pid: noProcess, ending: true, until: in(3 * time.Hour), killAt: in(2 * time.Hour), grace: time.Hour, refused: map[int]bool{}}
	g.end(none, 5*time.Hour)
	within("asked to end later", g.killAt, 2*time.Hour)
	within("it looks", g.due(), 2*time.Hour)
	g.end(none, time.Hour)
	within("asked to end earlier", g.killAt, time.Hour)
	g.until = in(30 * time.Minute)
	within("the deadline comes first", g.due(), 30*time.Minute)
	g.ending, g.until = false, in(3*time.Hour)
	within("it asks the command to end before its deadline", g.due(), 2*time.Hour)

	p := &Process{until: in(2 * time.Hour), late: time.Hour}
	within("a guard that is stuck", p.due(), 3*time.Hour)
	p.stopped, p.stopBy = true, in(5*time.Hour)
	within("a stop later", p.due(), 3*time.Hour)
	p.stopBy = in(time.Hour)
	within("a stop earlier", p.due(), time.Hour)
}

// A process that may not be signalled is told of once.
func TestDeniedIsToldOnce(t *testing.T) {
	var told bytes.Buffer
	g := &guard{reports: json.NewEncoder(&told), refused: map[int]bool{}}
	for range 3 {
		g.denied(noProcess, syscall.EPERM)
		g.denied(noProcess+1, syscall.ESRCH)
	}
	if text := told.String(); strings.Count(text, "denied") != 1 || strings.Count(text, "\n") != 1 {
		t.Errorf("%q", text)
	}
}
