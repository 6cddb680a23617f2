//go:build go1.25

package electiontest

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

// unround moves virtual time away from whole seconds: a stamp that ends in zeros
// is taken for a coarse one.
func unround() { time.Sleep(123456789) }

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

func on(clock clocks.Clock) func(*config) { return func(c *config) { c.Clock = clock } }

// A candidate whose clock the store's stamps prove to be off by more than
// MaxClockSkew does not lead; one within it does.
func TestClockSkewKeepsFromLeading(t *testing.T) {
	for _, c := range []struct {
		name   string
		offset time.Duration
		leads  bool
	}{
		{"ahead within", S - 1, true},
		{"behind within", -S + 1, true},
		{"ahead", S + 1, false},
		{"behind", -S - 1, false},
		{"hours ahead", 5 * time.Hour, false},
		{"hours behind", -5 * time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				var p proved
				d := memory.NewDecider()
				a := join(t, d, "a", on(clocks.NewOffset(nil, c.offset)), p.hook)
				sleep(10 * T)
				if c.leads {
					a.leads(t)
					if got := p.all(); len(got) > 0 {
						t.Errorf("told of %v", got)
					}
					return
				}
				if a.count() > 0 {
					t.Fatal("led with a clock that is proved wrong")
				}
				if e := d.Entry(); !e.Vacant() || e.ElectionNumber == le.NoElections {
					t.Errorf("the record is %+v, want it given back", e)
				}
				got := p.all()
				if len(got) == 0 || got[0].Offset.Abs() <= S || got[0].Offset.Abs() > c.offset.Abs() || got[0].Offset < 0 != (c.offset < 0) || got[0].MaxClockSkew != S {
					t.Errorf("told of %v", got)
				}
				if n := len(a.opsSince(time.Time{}, le.OpAcquire)); n > 4 {
					t.Errorf("tried %d times in ten terms", n)
				}
			})
		})
	}
}

// A leader whose clock steps out of its bounds steps down with the first stamp that
// shows it, and another leads; the view is not moved on by that write.
func TestClockSkewEndsTheLeadership(t *testing.T) {
	for _, step := range []time.Duration{5 * time.Second, -5 * time.Second} {
		t.Run(step.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				var p proved
				d := memory.NewDecider()
				clock := clocks.NewOffset(nil, 0)
				a := join(t, d, "a", on(clock), p.hook)
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
				sleep(3 * T)
				if b.leads(t); b.count() != 1 {
					t.Errorf("b had %d leaderships: a disturbs it", b.count())
				}
				// A repair that steps counts at once.
				clock.Set(0)
				b.stop()
				sleep(time.Second)
				a.leads(t)
			})
		})
	}
}

// slewing is a clock that is turned back slowly, so that its monotonic reading goes
// along: no step is to be seen.
type slewing struct {
	clocks.SystemClock
	begin time.Time
	from  time.Duration
}

func (s *slewing) off() time.Duration { return max(s.from-time.Since(s.begin)/10, 0) }

func (s *slewing) Now() time.Time                  { return time.Now().Round(0).Add(s.off()) }
func (s *slewing) Until(t time.Time) time.Duration { return t.Sub(s.Now()) }
func (s *slewing) Monotonic() time.Duration        { return time.Since(s.begin) + s.off() - s.from }

// A proof grows old: a clock that was slewed back into its bounds leads again, also
// where there is nobody whose records could show it.
func TestClockSkewProofGrowsOld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		d.Replace(rival(7))
		a := join(t, d, "a", on(&slewing{begin: time.Now(), from: 5 * time.Second}))
		sleep(2 * T)
		if a.count() > 0 {
			t.Fatal("led with a clock that is proved wrong")
		}
		sleep(10 * T)
		a.leads(t)
	})
}

// A step back while the request is out has repaired what its stamp proves.
func TestClockSkewRepairedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 5*time.Second)
		a := join(t, d, "a", on(clock), func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Slow(time.Second).On(memory.Write).Times(1))
		})
		sleep(500 * time.Millisecond)
		clock.Set(0)
		sleep(time.Second)
		a.leads(t)
	})
}

// A clock that was set back while the request was out is not right for what it
// showed when the request began.
func TestClockSkewSetBackMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		a := join(t, d, "a", on(clock), polled)
		sleep(6 * time.Second)
		a.store.Inject(memory.Slow(time.Second).On(memory.Write))
		sleep(1200 * time.Millisecond) // an extension is under way since 7 s
		clock.Set(-5 * time.Second)
		sleep(time.Second)
		if r := a.leadership(t, 0); r.view.ValueInFuture() || !errors.Is(context.Cause(r.ctx), le.ErrClockSkew) {
			t.Errorf("a has a view until %v, cause %v", r.view.Get(), context.Cause(r.ctx))
		}
	})
}

// What proved a clock to be ahead is disproved by a record that has come sooner than
// such a clock would have it.
func TestClockSkewIsDisproved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		s := &slewing{begin: time.Now(), from: 2 * time.Second}
		a := join(t, d, "a", on(s))
		sleep(time.Second)
		b := join(t, d, "b")
		sleep(T) // now it is right
		b.leads(t)
		sleep(T) // and has seen an extension
		b.stop()
		sleep(time.Second)
		a.leads(t)
	})
}

// An answer that is lost is compared as well, when the write is read back.
func TestClockSkewOfALostAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", on(clocks.NewOffset(nil, 10*time.Second)), func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseAnswers().On(memory.Write))
		}, polled)
		sleep(3 * T)
		if a.count() > 0 {
			t.Fatal("led with a clock that is proved wrong")
		}
	})
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

// A clock that knows its own error is asked before a campaign and four times a term.
func TestClockSkewByTheClocksOwnBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		clock := &boundedClock{}
		clock.bound.Store(int64(clocks.Unbounded))
		d := memory.NewDecider()
		a := join(t, d, "a", on(clock))
		sleep(3 * T)
		if n := len(a.opsSince(time.Time{}, le.OpAcquire)); n > 0 {
			t.Fatalf("%d acquisitions with a clock that nothing keeps right", n)
		}
		clock.bound.Store(int64(S))
		sleep(T / 4)
		a.leads(t)
		clock.bound.Store(int64(S) + 1)
		sleep(T / 4)
		var skew *le.ClockSkewError
		if cause := context.Cause(a.leadership(t, 0).ctx); !errors.As(cause, &skew) || !skew.Bound || skew.Offset != S+1 {
			t.Fatalf("cause %v", cause)
		}
		a.follows(t)
		// One that cannot tell is taken as it is.
		err := errors.New("operation not permitted")
		clock.err.Store(&err)
		sleep(T)
		a.leads(t)
	})
}

// Where nothing is promised of clocks, nothing is compared.
func TestClockSkewOfNoConcern(t *testing.T) {
	for name, adjust := range map[string]func(*config){
		"one clock for all": func(c *config) { c.MaxClockSkew, c.ClockPolicy = 0, le.SharedClock },
		"Unsynchronized":    func(c *config) { c.ClockPolicy = le.Unsynchronized },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				a := join(t, memory.NewDecider(), "a", on(clocks.NewOffset(nil, time.Hour)), adjust)
				sleep(3 * T)
				a.leads(t)
			})
		})
	}
}

// coarse is a store that tells its time in some unit only.
type coarse struct {
	le.RaceDecider
	unit time.Duration
}

type coarseToken struct {
	le.LeaderToken
	unit time.Duration
}

func (c coarseToken) CommitTS() time.Time { return c.LeaderToken.CommitTS().Truncate(c.unit) }

func (c coarse) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	e, err := c.RaceDecider.ReadCurrent(ctx)
	if err == nil {
		e.Token = coarseToken{e.Token, c.unit}
	}
	return e, err
}

func (c coarse) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	e = e.Clone()
	if t, ok := e.Token.(coarseToken); ok {
		e.Token = t.LeaderToken
	}
	token, err := c.RaceDecider.WriteEntry(ctx, e)
	return coarseToken{token, c.unit}, err
}

// What a coarse stamp cuts off proves nothing.
func TestClockSkewByCoarseStamps(t *testing.T) {
	for _, unit := range []time.Duration{time.Microsecond, time.Millisecond, time.Second} {
		for _, c := range []struct {
			offset time.Duration
			leads  bool
		}{{S, true}, {-S, true}, {S + 3*unit + time.Millisecond, false}, {-S - 3*unit - time.Millisecond, false}} {
			bubble(t, func(t *testing.T) {
				unround()
				d := memory.NewDecider()
				a := join(t, d, "a", on(clocks.NewOffset(nil, c.offset)), polled, func(cfg *config) { cfg.Decider = coarse{cfg.Decider, unit} })
				sleep(T)
				if led := a.count() > 0; led != c.leads {
					t.Errorf("unit %v, offset %v: led %t", unit, c.offset, led)
				}
			})
		}
	}
}

// A leadership that is lost in one step with all its callbacks says why.
func TestLostLeadershipSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			c.OnElected, c.OnOusting = func(context.Context, *le.TimeView) {}, nil
		})
		sleep(time.Second)
		a.leads(t)
		d.Replace(rival(first + 9))
		synctest.Wait()
		a.mu.Lock()
		defer a.mu.Unlock()
		last := a.status[len(a.status)-1]
		if last.From != le.Leading || last.To != le.Following || !errors.Is(last.Cause, le.ErrOusted) || last.Number != first {
			t.Errorf("told of %+v, want its end as ousted", last)
		}
	})
}

// So does one that is given up when OnElected has returned, and is released.
func TestResignedLeadershipSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			c.OnElected, c.OnOusting = func(context.Context, *le.TimeView) {}, nil
		})
		sleep(time.Second)
		a.store.Inject(memory.Slow(time.Second))
		go a.Resign(t.Context())
		sleep(5 * time.Second)
		a.mu.Lock()
		defer a.mu.Unlock()
		if n := len(a.status); n != 3 || a.status[1].From != le.Leading || a.status[1].To != le.Draining || !errors.Is(a.status[1].Cause, le.ErrResigned) || a.status[1].Number != first {
			t.Errorf("told of %+v, want its end as resigned", a.status)
		}
	})
}
