//go:build go1.25

package rules

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// OnOusting's ctx ends with DrainTimeout, to the moment, whatever else there is to wake up for.
func TestRule09OnOustingEndsToTheMoment(t *testing.T) {
	const drain = 2500 * time.Millisecond
	for name, end := range map[string]func(m *member, d *memory.Decider){
		"stopped": func(m *member, _ *memory.Decider) { m.stop() },
		"ousted":  func(_ *member, d *memory.Decider) { d.Replace(rival(first + 1)) },
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			var ended time.Time
			a := join(t, d, "a", func(c *config) {
				c.DrainTimeout = drain
				c.OnOusting = func(ctx context.Context) { <-ctx.Done(); ended = time.Now() }
			})
			sleep(time.Second)
			a.leads(t)
			left := time.Now()
			end(a, d)
			sleep(time.Minute)
			if took := ended.Sub(left); took != drain {
				t.Errorf("OnOusting's ctx ended after %v, want %v", took, drain)
			}
		})
	}
}

// OnOusting comes after OnElected, even if the news that another leads is here together with the answer
// by which a leadership begins.
func TestContractOnOustingComesSecond(t *testing.T) {
	before := 0
	for range 200 {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(vacantAt(4))
			const slow = 2 * time.Second
			var mu sync.Mutex
			var calls []string
			call := func(name string) { mu.Lock(); defer mu.Unlock(); calls = append(calls, name) }
			a := join(t, d, "a", func(c *config) {
				c.Decider.(*memory.Decider).Inject(memory.Slow(slow).On(memory.Write).Times(1))
				c.OnElected = func(context.Context, *le.TimeView) { call("OnElected") }
				c.OnOusting = func(context.Context) { call("OnOusting") }
			})
			time.Sleep(slow)
			d.Replace(rival(first + 1e6))
			sleep(time.Second)
			a.quit()
			if len(calls) > 0 && calls[0] == "OnOusting" {
				before++
			}
		})
	}
	if before > 10 { // two goroutines that begin one after the other may still do their first thing the other way round
		t.Errorf("OnOusting came first %d times", before)
	}
}

// A store that has judged a write works: what it refuses for good afterwards passes, or not.
func TestRule17AJudgedWriteHasWorked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		writes := 0
		a := join(t, d, "a", func(c *config) {
			refuse := memory.Fail(&le.LostRaceError{}).On(memory.Write)
			c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
				if op.Kind != memory.Write {
					return memory.Fault{}
				}
				if writes++; writes == 1 {
					return refuse(op)
				}
				return memory.Fault{Err: fmt.Errorf("no permission: %w", le.ErrPermanent)}
			})
			polled(c)
		})
		sleep(10 * T)
		if a.Status() == le.Stopped || writes < 2 {
			t.Fatalf("after %d writes it has stopped: %v", writes, a.Wait())
		}
		a.store.Inject(nil)
		sleep(T)
		a.leads(t)
	})
}
