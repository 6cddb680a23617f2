//go:build go1.25

package rules

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// startled is a store whose tokens panic once, when armed: user code that runs in a campaign's loop.
type startled struct {
	le.RaceDecider
	armed atomic.Bool
	ends  bool // its goroutine, in place of a panic
}

type startledToken struct {
	le.LeaderToken
	of *startled
}

func (t startledToken) CommitTS() time.Time {
	if t.of.armed.CompareAndSwap(true, false) {
		if t.of.ends {
			runtime.Goexit()
		}
		panic("CommitTS")
	}
	return time.Time{}
}

func (d *startled) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	e, err := d.RaceDecider.ReadCurrent(ctx)
	if err == nil {
		e.Token = startledToken{e.Token, d}
	}
	return e, err
}

func (d *startled) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	e = e.Clone()
	e.Token = e.Token.(startledToken).LeaderToken
	token, err := d.RaceDecider.WriteEntry(ctx, e)
	return startledToken{token, d}, err
}

// A campaign whose loop was ended under it, as by t.FailNow in a LeaderToken, says so to all who wait.
func TestLoopThatIsEndedIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &startled{RaceDecider: memory.NewDecider().Polled(), ends: true}
		d.armed.Store(true)
		c, err := le.Config{Decider: d, LeaderID: "a", TermLength: T, MaxClockSkew: S}.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if l, err := c.Lead(t.Context()); l != nil || err == nil {
			t.Errorf("Lead returns %v, %v", l, err)
		}
		if c.Wait() == nil {
			t.Error("Wait says nothing")
		}
	})
}

// Acquire runs in its caller's goroutine, who may recover from a panic of user code that the loop calls.
// Nobody extends the lease then, so the leadership is over.
func TestPanicInTheLoopEndsTheLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &startled{RaceDecider: memory.NewDecider().Polled()}
		var view *le.TimeView
		ended := make(chan error, 1)
		recovered := make(chan any, 1)
		go func() {
			defer func() { recovered <- recover() }()
			_ = le.Config{Decider: d, LeaderID: "a", TermLength: T, MaxClockSkew: S, OnElected: func(ctx context.Context, v *le.TimeView) {
				view = v
				d.armed.Store(true)
				<-ctx.Done()
				ended <- context.Cause(ctx)
			}}.Acquire(t.Context())
		}()
		if <-recovered == nil {
			t.Error("it has not panicked")
		}
		synctest.Wait()
		select {
		case cause := <-ended:
			if cause == nil || view.ValueInFuture() {
				t.Errorf("it ended by %v, and its view is until %v", cause, view.Get())
			}
		default:
			t.Error("nobody extends the lease, and the leader's ctx goes on")
		}
	})
}

// leaping is a clock of which both times leap, as those of a process that has had no CPU.
type leaping struct {
	clocks.Clock
	by atomic.Int64
}

func (c *leaping) Now() time.Time { return c.Clock.Now().Add(time.Duration(c.by.Load())) }

// A view that has run out has run out, even if Healthy is late as well when the process looks again.
func TestRule16ViewEndsBeforeHealth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		var hang atomic.Bool
		clock := &leaping{Clock: clocks.System()}
		a := join(t, memory.NewDecider(), "a", stayOn, func(c *config) {
			c.Clock = clock
			c.Healthy = func(context.Context) error {
				if hang.Load() {
					<-release
				}
				return nil
			}
		})
		sleep(time.Second)
		hang.Store(true)
		sleep(6*time.Second + time.Second/2) // it is asked for the extension at 7 s
		clock.by.Store(int64(time.Minute))
		sleep(2 * time.Second)
		hang.Store(false)
		close(release)
		synctest.Wait()
		if r := a.leadership(t, 0); !errors.Is(r.cause, le.ErrExpired) {
			t.Errorf("it ended by %v", r.cause)
		}
	})
}

// Once returns when its Wait is over, and asks Healthy no more, which may not return.
func TestOnceEndsWhileSick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		begin, release, over := time.Now(), make(chan struct{}), make(chan error, 1)
		go func() {
			over <- le.Config{Decider: memory.NewDecider(), LeaderID: "b", TermLength: T, MaxClockSkew: S, Healthy: func(context.Context) error {
				if time.Since(begin) >= 4*T {
					<-release
				}
				return errSick
			}}.Once(t.Context(), le.OnceOptions{Hold: 20 * time.Hour, Wait: 4 * T}, func(context.Context, *le.TimeView) error { return nil })
		}()
		sleep(4*T + time.Second)
		select {
		case err := <-over:
			if !errors.Is(err, le.ErrUnhealthy) {
				t.Error(err)
			}
		default:
			t.Error("a second after its Wait it has not returned")
		}
		close(release)
		synctest.Wait()
	})
}
