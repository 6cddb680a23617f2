//go:build go1.25

package rules

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// This file is about clocks that are not as MaxClockSkew promises: a candidate's, or the store's.

// unround moves virtual time away from whole seconds: a stamp that ends in zeros
// is taken for a coarse one.
func unround() { time.Sleep(123456789) }

func on(clock clocks.Clock) func(*config) { return func(c *config) { c.Clock = clock } }

// proved collects what Trace.ClockSkew is told.
type proved struct {
	mu    sync.Mutex
	found []*le.ClockSkewError
}

func (p *proved) hook(c *config) {
	c.Trace.ClockSkew = func(e *le.ClockSkewError) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.found = append(p.found, e)
	}
}

func (p *proved) all() []*le.ClockSkewError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*le.ClockSkewError(nil), p.found...)
}

// boundedClock knows its own error.
type boundedClock struct {
	clocks.SystemClock
	bound atomic.Int64
	err   atomic.Pointer[error]
}

func (b *boundedClock) ErrorBound() (time.Duration, error) {
	if err := b.err.Load(); err != nil {
		return 0, *err
	}
	return time.Duration(b.bound.Load()), nil
}

// boundedOffset is a clock that is off and knows its own error.
type boundedOffset struct {
	*clocks.Offset
	bound *boundedClock
}

func (b boundedOffset) ErrorBound() (time.Duration, error) { return b.bound.ErrorBound() }

// A candidate whose clock the stamps of its own writes show to be off by more than MaxClockSkew gives back what it
// has acquired by that clock, leaves the record to the others for a term and the allowance for drift, and then
// leads: its record is marked, and it compares no clocks.
func TestClockSkewIsProved(t *testing.T) {
	for name, c := range map[string]struct {
		offset time.Duration
		wrong  bool
	}{
		"ahead within":  {S - 1, false},
		"behind within": {-S + 1, false},
		"ahead":         {S + 1, true},
		"behind":        {-S - 1, true},
		"hours ahead":   {5 * time.Hour, true},
		"hours behind":  {-5 * time.Hour, true},
	} {
		scene(t, name, func(t *testing.T) {
			unround()
			var p proved
			d := memory.NewDecider()
			a := join(t, d, "a", on(clocks.NewOffset(nil, c.offset)), p.hook)
			sleep(T + S - time.Millisecond)
			got := p.all()
			if !c.wrong {
				if a.leads(t); len(got) > 0 || d.Entry().Unsynchronized {
					t.Errorf("told of %v; the record is %+v", got, d.Entry())
				}
				return
			}
			if e := d.Entry(); a.count() > 0 || !e.Vacant() || e.ElectionNumber == le.NoElections || !e.Unsynchronized {
				t.Fatalf("it has led %d times; the record is %+v, want it given back", a.count(), e)
			}
			if len(got) != 1 || got[0].Offset.Abs() <= S || got[0].Offset.Abs() > c.offset.Abs() || got[0].Offset < 0 != (c.offset < 0) || got[0].MaxClockSkew != S {
				t.Errorf("told of %v", got)
			}
			sleep(10 * T)
			if a.leads(t); a.count() != 1 || !d.Entry().Unsynchronized {
				t.Errorf("%d leaderships; the record is %+v, want it marked", a.count(), d.Entry())
			}
		})
	}
}

// A leader whose clock steps out of its bounds steps down with the first stamp that shows it; that write does not
// move the view. Another leads at once, and is not disturbed. When it is gone, the first leaves a term to
// others. Then it leads, marked. The next stamp of its own that fits ends the mistrust.
func TestClockSkewEndsTheLeadership(t *testing.T) {
	for _, step := range []time.Duration{5 * time.Second, -5 * time.Second} {
		scene(t, step.String(), func(t *testing.T) {
			unround()
			d := memory.NewDecider()
			clock := clocks.NewOffset(nil, 0)
			a := join(t, d, "a", on(clock))
			synctest.Wait()
			b := join(t, d, "b")
			sleep(3 * time.Second)
			r := a.leadership(t, 0)
			before := r.view.Get()
			clock.Set(step)
			sleep(5 * time.Second) // an extension is made at 7 s
			if r.view.ValueInFuture() || !r.view.Get().Equal(before) {
				t.Fatalf("a has a view until %v, want the one until %v ended", r.view.Get(), before)
			}
			var skew *le.ClockSkewError
			if cause := context.Cause(r.ctx); !errors.Is(cause, le.ErrClockSkew) || !errors.As(cause, &skew) || skew.Offset != step {
				t.Fatalf("cause %v, want ErrClockSkew by %v", cause, step)
			}
			b.leads(t)
			sleep(10 * T)
			if b.leads(t); b.count() != 1 {
				t.Errorf("b had %d leaderships: a disturbs it", b.count())
			}
			clock.Set(0) // which nothing shows before a's next write
			b.quit()
			sleep(T)
			a.follows(t)
			sleep(S + time.Second)
			if a.leads(t); !d.Entry().Unsynchronized {
				t.Errorf("the record is %+v, want it marked", d.Entry())
			}
			must(t, a.Resign(t.Context()))
			sleep(T + time.Second)
			if a.leads(t); d.Entry().Unsynchronized {
				t.Errorf("the record is %+v, want no mark: its last stamps fit", d.Entry())
			}
		})
	}
}

// A Clock that knows its own error is asked four times a term. While it may be off by more than MaxClockSkew, it is
// taken for wrong. If it cannot tell, it is taken for right.
func TestClockSkewByTheClocksOwnBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		clock := &boundedClock{}
		clock.bound.Store(int64(clocks.Unbounded))
		d := memory.NewDecider()
		a := join(t, d, "a", on(clock))
		sleep(T + S - time.Millisecond)
		a.follows(t)
		sleep(time.Second)
		if a.leads(t); !d.Entry().Unsynchronized {
			t.Errorf("the record is %+v, want it marked", d.Entry())
		}
		clock.bound.Store(int64(S))
		sleep(T / 4)
		must(t, a.Resign(t.Context()))
		sleep(T + 2*S)
		if a.leads(t); d.Entry().Unsynchronized || a.count() != 2 {
			t.Errorf("%d leaderships; the record is %+v, want no mark", a.count(), d.Entry())
		}
		clock.bound.Store(int64(S) + 1)
		sleep(T / 4)
		var skew *le.ClockSkewError
		if cause := context.Cause(a.leadership(t, 1).ctx); !errors.As(cause, &skew) || !skew.Bound || skew.Offset != S+1 {
			t.Fatalf("cause %v", cause)
		}
		a.follows(t)
		err := errors.New("operation not permitted")
		clock.err.Store(&err)
		sleep(T / 4)
		if a.leads(t); d.Entry().Unsynchronized {
			t.Errorf("the record is %+v, want no mark", d.Entry())
		}
	})
}

// If nothing is promised of clocks, nothing is compared.
func TestClockSkewOfNoConcern(t *testing.T) {
	for name, adjust := range map[string]func(*config){
		"one clock for all": func(c *config) { c.MaxClockSkew, c.ClockPolicy = 0, le.SharedClock },
		"Unsynchronized":    func(c *config) { c.ClockPolicy = le.Unsynchronized },
	} {
		scene(t, name, func(t *testing.T) {
			unround()
			_, a := leader(t, on(clocks.NewOffset(nil, time.Hour)), adjust)
			sleep(3 * T)
			if a.leads(t); a.count() != 1 {
				t.Errorf("%d leaderships", a.count())
			}
		})
	}
}

func unsynchronized(c *config) { c.ClockPolicy = le.Unsynchronized }

// Clocks that are hours apart: a challenger waits a whole term and the allowance for
// drift from when it saw the last extension, and then leads.
func TestUnsynchronizedFailOver(t *testing.T) {
	for name, offset := range map[string]time.Duration{"ahead": 3 * time.Hour, "behind": -3 * time.Hour} {
		scene(t, name, func(t *testing.T) {
			d, a := leader(t, unsynchronized, on(clocks.NewOffset(nil, -time.Hour)))
			b := join(t, d, "b", unsynchronized, on(clocks.NewOffset(nil, offset)))
			sleep(10 * T)
			a.leads(t)
			if b.count() > 0 {
				t.Fatal("b led as well")
			}
			r, last := a.leadership(t, 0), d.Entry()
			if !last.Unsynchronized {
				t.Errorf("the record %+v does not say that its clock means nothing", last)
			}
			var written time.Time
			a.note(func() { written = a.ops[len(a.ops)-1].Start.Add(time.Hour) })
			a.store.Inject(memory.Fail(errors.New("cut off")))
			for !b.View().ValueInFuture() && time.Since(written) < 3*T {
				sleep(time.Millisecond)
				if a.View().ValueInFuture() && b.View().ValueInFuture() {
					t.Fatal("two views at once")
				}
			}
			near(t, "the fail-over, from the last extension,", time.Since(written), T+S+spread/2, spread/2+5*time.Millisecond)
			near(t, "a's view, from the same,", r.done.Sub(written), T-S, time.Millisecond)
		})
	}
}

// stalling is the clock of a machine that can be suspended: monotonic time stands
// still and what sleeps does not wake, while wall time goes on.
type stalling struct {
	*clocks.Offset
	mu      sync.Mutex
	at      time.Duration // where monotonic time stood still
	lost    time.Duration // by what it is behind since
	resumed chan struct{} // nil: it runs
}

func (s *stalling) suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.resumed = s.Offset.Monotonic()-s.lost, make(chan struct{})
}

func (s *stalling) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resumed != nil {
		s.lost = s.Offset.Monotonic() - s.at
		close(s.resumed)
		s.resumed = nil
	}
}

func (s *stalling) Monotonic() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resumed != nil {
		return s.at
	}
	return s.Offset.Monotonic() - s.lost
}

func (s *stalling) SleepFor(ctx context.Context, d time.Duration) bool {
	slept := s.Offset.SleepFor(ctx, d)
	s.mu.Lock()
	resumed := s.resumed
	s.mu.Unlock()
	if resumed != nil {
		<-resumed
	}
	return slept
}

// An operator reaches a leader whose clock says that its term is long over.
func TestUnsynchronizedTransfer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", unsynchronized, on(clocks.NewOffset(nil, -time.Hour)))
		b := join(t, d, "b", unsynchronized)
		sleep(T)
		was, next := a, b
		if b.View().ValueInFuture() {
			was, next = b, a
		}
		must(t, le.Transfer(t.Context(), d.Handle(), next.id))
		sleep(time.Second)
		next.leads(t)
		was.follows(t)
	})
}
