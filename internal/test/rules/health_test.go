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
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

var errSick = errors.New("sick")

// Rule 16: one answer is for one write, however soon the next is.
func TestRule16HealthIsAskedForEachExtension(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked atomic.Int32
		a := join(t, memory.NewDecider(), "a", func(c *config) {
			c.ExtendEvery = T / 20
			c.Healthy = func(context.Context) error { asked.Add(1); return nil }
		})
		sleep(2 * T)
		if writes := len(a.opsSince(time.Time{}, le.OpAcquire, le.OpExtend)); writes < 30 || int(asked.Load()) < writes {
			t.Errorf("asked %d times for %d writes", asked.Load(), writes)
		}
	})
}

// Rule 16: a Healthy that is late is told so by its ctx, and asked again when it has returned.
func TestRule16LateHealthIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked atomic.Int32
		a := join(t, memory.NewDecider(), "a", func(c *config) {
			c.Healthy = func(ctx context.Context) error {
				if asked.Add(1) == 1 {
					<-ctx.Done()
				}
				return nil
			}
		})
		sleep(T/4 + time.Millisecond)
		a.follows(t)
		sleep(T/2 + time.Second)
		a.leads(t)
	})
}

// A Healthy that ends its goroutine has not said that all is well.
func TestRule16HealthThatDoesNotReturn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a", func(c *config) {
			c.Healthy = func(context.Context) error { runtime.Goexit(); return nil }
		})
		sleep(3 * T)
		if a.follows(t); a.count() > 0 {
			t.Error("it has led")
		}
	})
}

// Whoever stops is not asked any more, sick or not, however long its callbacks take.
func TestRule16HealthIsNotAskedAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked atomic.Int32
		var sick atomic.Bool
		a := join(t, memory.NewDecider(), "a", func(c *config) {
			c.OnElected = func(ctx context.Context, _ *le.TimeView) {
				<-ctx.Done()
				time.Sleep(3 * T)
			}
			c.Healthy = func(context.Context) error {
				if asked.Add(1); sick.Load() {
					return errSick
				}
				return nil
			}
		})
		sleep(time.Second)
		sick.Store(true)
		sleep(T)
		if s := a.Status(); s != le.Draining {
			t.Fatalf("it is %v", s)
		}
		before := asked.Load()
		a.quit()
		if n := asked.Load() - before; n > 0 {
			t.Errorf("asked %d times since it was told to stop", n)
		}
	})
}

// Rule 16: a Healthy that hangs, and does not heed its ctx, is not called a second time.
func TestRule16HungHealthIsCalledOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked atomic.Int32
		hang := make(chan struct{})
		a := join(t, memory.NewDecider(), "a", func(c *config) {
			c.Healthy = func(context.Context) error { asked.Add(1); <-hang; return nil }
		})
		sleep(10 * T)
		if a.follows(t); asked.Load() != 1 {
			t.Errorf("%d calls at once", asked.Load())
		}
		close(hang)
		sleep(T)
		a.leads(t)
	})
}

// Rule 16: once it is sick, a leader without callbacks extends no more, and its view ends at once.
func TestRule16SickWithoutCallbacks(t *testing.T) {
	for _, how := range []string{"error", "hangs"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var sick atomic.Bool
				asked, over := make(chan struct{}), make(chan struct{})
				a := join(t, memory.NewDecider(), "a", func(c *config) {
					c.OnElected, c.OnOusting = nil, nil
					c.Healthy = func(context.Context) error {
						if !sick.Load() {
							return nil
						}
						if asked <- struct{}{}; how == "hangs" {
							<-over
						}
						return errSick
					}
				})
				sleep(time.Second)
				a.leads(t)
				sick.Store(true)
				begun := time.Now()
				<-asked
				if how == "hangs" {
					sleep(T / 4)
				}
				synctest.Wait()
				a.follows(t)
				sick.Store(false)
				close(over)
				sleep(time.Second)
				if n := len(a.opsSince(begun, le.OpExtend)); n > 0 {
					t.Errorf("%d extensions after Healthy said no", n)
				}
			})
		})
	}
}
