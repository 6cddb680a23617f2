//go:build go1.25

package rules

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// counting is a clock that tells of its jumps, has none, and counts who wakes by it.
type counting struct {
	clocks.Clock
	woken atomic.Int64
}

func (c *counting) SleepFor(ctx context.Context, d time.Duration) bool {
	slept := c.Clock.SleepFor(ctx, d)
	if slept {
		c.woken.Add(1)
	}
	return slept
}

func (c *counting) NotifyJump(func()) (func(), error) { return func() {}, nil }

// Where nothing is amiss, a candidate wakes by a clock that is not the system's to extend, twice a
// term, and, as a leader, once a second to look at both its clocks; a follower on a feed when a term
// could have run out, and one that polls to read. Whatever else wakes it comes from the store.
func TestWakeUps(t *testing.T) {
	const terms = 40
	for name, most := range map[string]struct{ leader, standby int64 }{
		"feed": {2*terms + terms*int64(T)/int64(time.Second), 0},
		"poll": {2*terms + terms*int64(T)/int64(time.Second), 2 * terms},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				var clock [2]*counting
				for i := range clock {
					clock[i] = &counting{Clock: clocks.System()}
					join(t, d, string(rune('a'+i)), func(c *config) {
						c.Clock = clock[i]
						if name == "poll" {
							polled(c)
						}
					})
					sleep(T)
				}
				leader, standby := clock[0].woken.Load(), clock[1].woken.Load()
				sleep(terms * T)
				leader, standby = clock[0].woken.Load()-leader, clock[1].woken.Load()-standby
				t.Logf("in %d terms the leader woke %d times, the standby %d times", terms, leader, standby)
				if leader > most.leader || standby > most.standby {
					t.Errorf("want at most %d and %d", most.leader, most.standby)
				}
				if leader < 2*terms {
					t.Error("the count has missed the extensions")
				}
			})
		})
	}
}
