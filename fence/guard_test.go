//go:build go1.25

package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

// A greater token is admitted when no act of a smaller one is under way any more, and an act
// whose turn comes after that is refused. Nobody waits longer than their ctx.
func TestDoKeepsTheNextOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fence.NewGuard("orders", 5)
		old, next := fencetest.Orders(5), fencetest.Orders(7)
		leave, gone := make(chan struct{}), errors.New("gone")
		first, admitted, second := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() {
			first <- g.Do(t.Context(), old, func(context.Context) error { <-leave; return nil })
		}()
		synctest.Wait()
		impatient := func(ask func(ctx context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
			defer cancel()
			begin := time.Now()
			if err := ask(ctx); !errors.Is(err, gone) || time.Since(begin) != time.Second {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		}
		impatient(func(ctx context.Context) error { return g.Check(ctx, next) })
		if err := g.Do(t.Context(), old, func(context.Context) error { return nil }); err != nil {
			t.Errorf("when nobody waits any more: %v", err)
		}
		go func() { admitted <- g.Check(t.Context(), next) }()
		synctest.Wait()
		impatient(func(ctx context.Context) error {
			return g.Do(ctx, old, func(context.Context) error { return errors.New("it was called") })
		})
		go func() {
			second <- g.Do(t.Context(), old, func(context.Context) error { return errors.New("it was called") })
		}()
		synctest.Wait()
		select {
		case err := <-admitted:
			t.Errorf("it did not wait: %v", err)
		case err := <-second:
			t.Errorf("it did not wait: %v", err)
		default:
		}
		close(leave)
		if err := errors.Join(<-first, <-admitted); err != nil {
			t.Fatal(err)
		}
		if err := <-second; !errors.Is(err, fence.ErrStale) {
			t.Errorf("an act that comes too late: %v", err)
		}
	})
}

// An act may act again under its own token, also while a greater one waits for it; and asks in
// vain for what would wait for it.
func TestActsWithinAnAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, other := fence.NewGuard("orders", 5), fence.NewGuard("orders", 1)
		old, next := fencetest.Orders(5), fencetest.Orders(7)
		admitted := make(chan error, 1)
		inner := 0
		err := g.Do(t.Context(), old, func(ctx context.Context) error {
			go func() { admitted <- g.Check(t.Context(), next) }()
			synctest.Wait()
			if err := g.Check(ctx, next); err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "inside an act") {
				t.Errorf("a greater token within: %v", err)
			}
			if err := other.Do(ctx, next, func(context.Context) error { return nil }); err != nil {
				t.Errorf("another guard: %v", err)
			}
			return g.Do(ctx, old, func(ctx context.Context) error {
				return g.Do(ctx, old, func(context.Context) error { inner++; return g.Check(ctx, old) })
			})
		})
		if err != nil || inner != 1 {
			t.Errorf("%v; the inner act ran %d times", err, inner)
		}
		if err := <-admitted; err != nil {
			t.Error(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = g.Do(t.Context(), next, func(context.Context) error { panic("act") })
		}()
		if err := g.Check(t.Context(), fencetest.Orders(8)); err != nil {
			t.Errorf("after an act that panicked: %v", err)
		}
	})
}

// What a guard has seen does not go back, also if a smaller token was being confirmed meanwhile.
func TestConfirmedTooLate(t *testing.T) {
	g := fence.NewGuard("orders", 0)
	confirming, leave := make(chan struct{}), make(chan struct{})
	g.Confirm = func(_ context.Context, t fence.Token) error {
		if t.Number == 5 {
			close(confirming)
			<-leave
		}
		return nil
	}
	late := make(chan error)
	go func() { late <- g.Check(t.Context(), fencetest.Orders(5)) }()
	<-confirming
	if err := g.Check(t.Context(), fencetest.Orders(7)); err != nil {
		t.Fatal(err)
	}
	close(leave)
	if err := <-late; !errors.Is(err, fence.ErrStale) || g.Greatest() != 7 {
		t.Errorf("%v, and the greatest is %d", err, g.Greatest())
	}
}

// What the record has once shown is confirmed for good; what the store says when it fails
// is said, until it works; and nobody waits for another's read longer than their ctx.
func TestConfirmByRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		confirm := fence.ConfirmBy(d)
		ask := func(n uint64) error {
			time.Sleep(2 * time.Second) // it reads once a second
			return confirm(t.Context(), fencetest.Orders(n))
		}
		d.Inject(memory.Fail(memory.ErrLost))
		if err := ask(7); !errors.Is(err, memory.ErrLost) {
			t.Errorf("a store that fails: %v", err)
		}
		d.Inject(nil)
		if err := ask(7); err == nil || errors.Is(err, memory.ErrLost) || !strings.Contains(err.Error(), "come to token 0") {
			t.Errorf("a token of nobody's: %v", err)
		}
		d.Replace(&le.RaceEntry{ElectionNumber: 7, Incarnation: "x", TermExpiry: time.Now()})
		if err := ask(7); err != nil {
			t.Error(err)
		}
		d.Replace(&le.RaceEntry{ElectionNumber: 3, Incarnation: "x", TermExpiry: time.Now()})
		if err := ask(9); err == nil {
			t.Error("a token of nobody's is confirmed")
		}
		if err := ask(7); err != nil {
			t.Errorf("after the store was set back: %v", err)
		}
		hang, gone := make(chan struct{}), errors.New("gone")
		d.Inject(memory.Hang(hang))
		time.Sleep(2 * time.Second)
		for _, who := range []string{"it reads itself", "another reads"} { // the first one's read goes on
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
			defer cancel()
			begin := time.Now()
			if err := confirm(ctx, fencetest.Orders(10)); !errors.Is(err, gone) || time.Since(begin) != time.Second {
				t.Errorf("while %s: %v after %v", who, err, time.Since(begin))
			}
		}
		close(hang)
	})
}

// Confirm is asked once for each greater token, and keeps out what it does not know.
func TestGuardConfirm(t *testing.T) {
	guard := fence.NewGuard("orders", 0)
	forged, asked := errors.New("forged"), 0
	type key struct{}
	guard.Confirm = func(ctx context.Context, token fence.Token) error {
		if asked++; ctx.Value(key{}) == nil && asked == 1 {
			t.Error("Confirm did not get the ctx of Check")
		}
		if token.Number > 7 {
			return forged
		}
		return nil
	}
	if err := guard.Check(context.WithValue(t.Context(), key{}, true), fencetest.Orders(8)); !errors.Is(err, forged) {
		t.Error(err)
	}
	if err := guard.Do(t.Context(), fencetest.Orders(1<<63-1), func(context.Context) error { t.Error("it acts"); return nil }); !errors.Is(err, forged) {
		t.Error(err)
	}
	if err := guard.Peek(t.Context(), fencetest.Orders(8)); err != nil || guard.Greatest() != 0 {
		t.Error(err, guard.Greatest())
	}
	for range 3 {
		if err := guard.Check(t.Context(), fencetest.Orders(7)); err != nil {
			t.Error(err)
		}
	}
	if err := guard.Check(t.Context(), fencetest.Orders(6)); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
	if asked != 3 {
		t.Errorf("Confirm was asked %d times, want 3", asked)
	}
	guard.Confirm = fence.ConfirmBy(nil)
	if err := guard.Check(t.Context(), fencetest.Orders(8)); err == nil || errors.Is(err, fence.ErrStale) || guard.Greatest() != 7 {
		t.Errorf("without a decider: %v, and %d is the greatest", err, guard.Greatest())
	}
}

// The election itself tells a genuine token from a forged one, at a bounded cost.
func TestConfirmBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		var reads atomic.Int32
		mine := d.Handle()
		mine.Inject(func(memory.Op) memory.Fault { reads.Add(1); return memory.Fault{} })
		number := func(n uint64) {
			d.Replace(&le.RaceEntry{LeaderID: "a", ElectionNumber: le.ElectionNumber(n), TermLength: time.Second, TermExpiry: time.Now()})
		}
		number(7)
		guard := fence.NewGuard("orders", 0)
		guard.Confirm = fence.ConfirmBy(mine)
		var wg sync.WaitGroup
		for n := range uint64(100) {
			wg.Go(func() {
				if err := guard.Check(t.Context(), fencetest.Orders(1000+n)); err == nil {
					t.Errorf("%d is admitted", 1000+n)
				}
			})
		}
		wg.Wait()
		if err := guard.Check(t.Context(), fencetest.Orders(7)); err != nil || reads.Load() != 1 {
			t.Errorf("%v, after %d reads", err, reads.Load())
		}
		number(8)
		if err := guard.Check(t.Context(), fencetest.Orders(8)); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("within a second of the last read: %v", err)
		}
		time.Sleep(time.Second)
		if err := guard.Check(t.Context(), fencetest.Orders(8)); err != nil || reads.Load() != 2 {
			t.Errorf("%v, after %d reads", err, reads.Load())
		}
	})
}

func TestGuard(t *testing.T) {
	g := fence.NewGuard("orders", 3)
	for _, c := range []struct {
		token fence.Token
		want  error
	}{
		{fencetest.Orders(2), fence.ErrStale}, {fencetest.Orders(3), nil}, {fencetest.Orders(3), nil}, {fencetest.Orders(5), nil}, {fencetest.Orders(4), fence.ErrStale}, {fencetest.Orders(5), nil},
		{fencetest.Orders(0), fence.ErrNoToken}, {fence.Token{Election: "other", Number: 9}, fence.ErrOtherElection},
	} {
		for name, judge := range map[string]func() error{
			"Peek":  func() error { return g.Peek(t.Context(), c.token) },
			"Check": func() error { return g.Check(t.Context(), c.token) },
			"Do":    func() error { return g.Do(t.Context(), c.token, func(context.Context) error { return nil }) },
		} {
			if err := judge(); !errors.Is(err, c.want) {
				t.Errorf("%s %v: %v, want %v", name, c.token, err, c.want)
			}
		}
	}
	var stale *fence.StaleError
	if err := g.Check(t.Context(), fencetest.Orders(4)); !errors.As(err, &stale) || stale.Greatest != 5 || stale.Token != fencetest.Orders(4) {
		t.Errorf("%v", err)
	}
	if g.Greatest() != 5 {
		t.Error(g.Greatest())
	}
	var zero fence.Guard
	if err := zero.Check(t.Context(), fencetest.Orders(1)); !errors.Is(err, fence.ErrOtherElection) {
		t.Error(err)
	}
}

// Whatever the order of arrival, no token is admitted after a greater one, and
// no act of a smaller one runs once a greater one was admitted.
func TestGuardConcurrently(t *testing.T) {
	g := fence.NewGuard("orders", 0)
	var running [65]atomic.Int32
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := i/8 + 1; n <= 64; n += 7 {
				before := g.Greatest()
				err := g.Do(t.Context(), fencetest.Orders(uint64(n)), func(context.Context) error {
					running[n].Add(1)
					defer running[n].Add(-1)
					for other := range running {
						if other != n && running[other].Load() > 0 {
							return fmt.Errorf("acts of %d and %d at once", other, n)
						}
					}
					return nil
				})
				if err == nil && le.ElectionNumber(n) < before || err != nil && !errors.Is(err, fence.ErrStale) {
					t.Errorf("%d after %d: %v", n, before, err)
				}
			}
		})
	}
	wg.Wait()
	if g.Greatest() != 64 {
		t.Errorf("%d", g.Greatest())
	}
}

func BenchmarkCheck(b *testing.B) {
	g := fence.NewGuard("orders", 5)
	token, err := fence.ParseToken("orders:5")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if g.Check(b.Context(), token) != nil {
			b.Fatal("refused")
		}
	}
}
