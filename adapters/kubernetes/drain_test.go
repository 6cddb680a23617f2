//go:build go1.25

package kubernetes_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// handsOver has a lead, whose controller lingers, and asks it to hand over to b.
func handsOver(t *testing.T, ctx context.Context, d *memory.Decider, a, b *operator) {
	t.Helper()
	a.linger = make(chan struct{})
	a.start(ctx)
	within(t, "a leads", a.led)
	b.start(ctx)
	within(t, "b is warm", b.warm)
	if err := le.Transfer(ctx, d, "b"); err != nil {
		t.Fatal(err)
	}
	within(t, "a's controller is told to stop", a.over)
}

// The lease is kept for as long as the manager waits for its controllers, which is longer than a
// term here, also if nothing but the manager's option says so.
func TestDrainsAsLongAsTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := memory.NewDecider()
		a, b := newOperator(t, "a", d.Handle()), newOperator(t, "b", d.Handle())
		handsOver(t, ctx, d, a, b)
		time.Sleep(grace - T/10)
		not(t, "b leads while a's controller still runs", b.led)
		close(a.linger)
		within(t, "b leads", b.led)
		if err := within(t, "a's Start returns", a.stopped); !errors.Is(err, le.ErrResigned) {
			t.Errorf("a's Start: %v", err)
		}
		cancel()
		within(t, "b's Start returns", b.stopped)
	})
}

// Controllers that the manager has given up still run until the process ends: Start returns
// for that, and the lease is not released.
func TestAbandonedControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const drain = 2 * grace
		ctx, cancel := context.WithCancel(t.Context())
		d := memory.NewDecider()
		a, b := newOperator(t, "a", d.Handle(), func(c *le.Config) { c.DrainTimeout = drain }), newOperator(t, "b", d.Handle())
		handsOver(t, ctx, d, a, b)
		asked := time.Now()
		if err := within(t, "a's Start returns", a.stopped); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a's Start: %v", err)
		}
		if took := time.Since(asked); took > grace+T/10 {
			t.Errorf("a's Start has returned after %v", took)
		}
		within(t, "b leads", b.led)
		if took := time.Since(asked); took < drain {
			t.Errorf("b leads after %v, while a's process could hold the lease for %v", took, drain)
		}
		close(a.linger)
		cancel()
		within(t, "b's Start returns", b.stopped)
	})
}

// A leader that has lost the record does not wait for its controllers: Start returns the cause at once, so
// that the process ends, as with controller-runtime's own election. That the manager would wait for
// ever makes no difference.
func TestLostLeadershipEndsStart(t *testing.T) {
	for name, wait := range map[string]time.Duration{"a while": grace, "for ever": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				d := memory.NewDecider()
				a := newOperatorThatWaits(t, "a", d.Handle(), wait)
				a.linger = make(chan struct{})
				a.start(ctx)
				within(t, "a leads", a.led)
				e := d.Entry()
				e.LeaderID, e.Incarnation, e.ElectionNumber, e.Extension = "another", "another's", e.ElectionNumber+1, 0
				e.TermExpiry = time.Now().Add(T)
				d.Replace(e)
				took := time.Now()
				if err := within(t, "a's Start returns", a.stopped); !errors.Is(err, le.ErrOusted) {
					t.Errorf("a's Start: %v", err)
				}
				if took := time.Since(took); took > time.Second {
					t.Errorf("a's Start has returned after %v", took)
				}
				close(a.linger)
				cancel()
				synctest.Wait()
				if e := d.Entry(); e.LeaderID != "another" {
					t.Errorf("the record is %+v", e)
				}
			})
		})
	}
}
