//go:build go1.25

package fence_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
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

// The token of nobody is none, also before there was any; and the present one may read.
func TestGuardsEdges(t *testing.T) {
	g := fence.NewGuard("orders", 0)
	if err := g.Check(t.Context(), fencetest.Orders(0)); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("no token: %v", err)
	}
	if err := g.Check(t.Context(), fencetest.Orders(3)); err != nil {
		t.Fatal(err)
	}
	if err := g.Peek(t.Context(), fencetest.Orders(3)); err != nil {
		t.Errorf("the token that was admitted last, reading: %v", err)
	}
	for _, text := range []string{"a:0", "a:+1", "a:-1", "a:01", "a:"} {
		if token, err := fence.ParseToken(text); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("%q: %v, %v", text, token, err)
		}
	}
	for status, want := range map[int]error{http.StatusConflict: fence.ErrStale, http.StatusOK: nil} {
		if err := fence.Refused(&http.Response{StatusCode: status, Header: http.Header{"Fencing-Refused": {"stale"}}}); !errors.Is(err, want) {
			t.Errorf("status %d: %v", status, err)
		}
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
		hang := make(chan struct{})
		d.Inject(memory.Hang(hang))
		hangs := make(chan error)
		go func() { hangs <- ask(8) }()
		time.Sleep(3 * time.Second)
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, gone)
		defer cancel()
		if err := confirm(ctx, fencetest.Orders(8)); !errors.Is(err, gone) {
			t.Errorf("while another reads: %v", err)
		}
		close(hang)
		<-hangs
		hang = make(chan struct{})
		d.Inject(memory.Hang(hang))
		time.Sleep(2 * time.Second)
		ctx, cancel = context.WithTimeoutCause(t.Context(), time.Second, gone)
		defer cancel()
		begin := time.Now()
		if err := confirm(ctx, fencetest.Orders(10)); !errors.Is(err, gone) || time.Since(begin) != time.Second {
			t.Errorf("while it reads itself: %v after %v", err, time.Since(begin))
		}
		close(hang)
	})
}
