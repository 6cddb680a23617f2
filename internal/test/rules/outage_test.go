//go:build go1.25

package rules

import (
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// leadsOn returns for how long a leader leads on that is cut off from its store just before
// an extension is due. Before is done a while before that.
func leadsOn(t *testing.T, every, due time.Duration, before func(*member)) (left time.Duration) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.ExtendEvery = every })
		sleep(2 * T)
		if before != nil {
			before(a)
		}
		a.awaitExtension()
		sleep(due - 50*time.Millisecond)
		a.store.Inject(memory.LoseRequests())
		cut := time.Now()
		<-a.leadership(t, 0).ctx.Done()
		left = time.Since(cut)
	})
	return left
}

func (m *member) awaitExtension() {
	extended := func() (n int) { m.note(func() { n = len(m.ext) }); return n }
	for n := extended(); extended() == n; {
		sleep(10 * time.Millisecond)
	}
}

// Rule 11: a leader that is cut off leads on for T - S - ExtendEvery at the least.
func TestRule11CutOff(t *testing.T) {
	near(t, "the default", leadsOn(t, 0, (T-S)/2, nil), (T-S)/2, 100*time.Millisecond)
	near(t, "extending every 4 s", leadsOn(t, 4*time.Second, 4*time.Second, nil), T-S-4*time.Second, 100*time.Millisecond)
}

// A call that failed, or was slow, a while before the outage brings forward the next extension.
func TestRule11CutOffWithNotice(t *testing.T) {
	for name, faults := range map[string]memory.Faults{
		"failed": memory.LoseRequests().On(memory.Write).Times(1),
		"slow":   memory.Slow(2500 * time.Millisecond).On(memory.Write).Times(1),
	} {
		left := leadsOn(t, 0, (T-S)/2, func(a *member) {
			a.store.Inject(faults)
			a.awaitExtension()
		})
		near(t, name, left, T-S-(T-S)/4, 100*time.Millisecond)
	}
}

// In fair weather ExtendEvery costs what it says, and a store that has recovered costs
// no more than before.
func TestRule11WritesInATerm(t *testing.T) {
	for every, most := range map[time.Duration]float64{0: 2.2, 4 * time.Second: 3.8} {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", func(c *config) { c.ExtendEvery = every })
			sleep(T)
			a.store.Inject(memory.LoseRequests().Times(1))
			sleep(5 * T)
			a.store.Inject(nil)
			began := time.Now()
			sleep(100 * T)
			if n := float64(len(a.opsSince(began))) / 100; n > most {
				t.Errorf("extending every %v: %.2f operations a term", every, n)
			}
		})
	}
}

// Rule 11: however long the terms are, one call that hangs costs half a minute.
func TestRule11ACallThatHangsInALongTerm(t *testing.T) {
	const term = 24 * time.Hour
	hang := memory.Always(memory.Fault{Delay: 1000 * time.Hour})
	long := func(c *config) { c.TermLength = term }
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", long, func(c *config) { c.Decider.(*memory.Decider).Inject(hang.On(memory.Read).Times(1)) }, polled)
		sleep(time.Minute)
		a.leads(t)
		b := join(t, d, "b", long)
		a.store.Inject(hang.On(memory.Write).Times(1))
		sleep((term - S) / 2) // the extension hangs
		begun := time.Now()
		if err := a.Resign(t.Context()); err != nil || time.Since(begun) > time.Minute {
			t.Errorf("resigned after %v: %v", time.Since(begun), err)
		}
		sleep(time.Second)
		b.leads(t)
	})
}

// Rule 9: the pause after the last failure, half a minute in a long term, is no reason to leave without a
// release.
func TestRule09ReleasesAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", polled, func(c *config) { c.TermLength = 5 * time.Minute })
		sleep(100 * time.Second)
		a.store.Inject(memory.LoseRequests())
		sleep(140 * time.Second)
		failed := len(a.opsSince(time.Time{}))
		for len(a.opsSince(time.Time{})) == failed {
			sleep(time.Second)
		}
		a.leads(t)
		a.store.Inject(nil)
		begun := time.Now()
		a.quit()
		if took := time.Since(begun); !d.Entry().Vacant() || took > 2*time.Second {
			t.Errorf("left after %v with %+v, want it released at once", took, d.Entry())
		}
	})
}

// Rule 11: a read that shows that the write has landed ends the pauses, even if a feed has told so before the
// write failed.
func TestRule11AWriteThatLandedIsNoFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.TermLength = time.Minute })
		sleep(time.Second)
		a.store.Inject(memory.Always(memory.Fault{Err: memory.ErrLost, Lands: true, AnswerDelay: 100 * time.Millisecond}).On(memory.Write))
		sleep(20 * time.Minute)
		if a.leads(t); a.count() != 1 {
			t.Errorf("%d leaderships", a.count())
		}
		ops := a.opsSince(time.Now().Add(-10 * time.Minute))
		for i, op := range ops[:len(ops)-1] {
			if next := ops[i+1]; op.Kind == le.OpExtend && (next.Kind != le.OpRead || next.Start.Sub(op.Start) > 3*time.Second) {
				t.Errorf("%v after an extension that landed: %v", next.Start.Sub(op.Start), next.Kind)
			}
		}
	})
}
