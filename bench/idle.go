package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// idleSizes is how many elections a process takes part in, one size after the other.
type idleSizes []int

// together is the most elections in a process with which all contestants are measured at the
// same time. With more, those of one store are.
const together = 100

// idled is what a process uses in a minute while nothing happens.
type idled struct {
	cpu      time.Duration
	switches float64
	memory   int64 // at the end
}

// idle is what was measured of one contestant: one value for each size, the zero value where
// it does not take part.
type idle struct {
	leader, standby []idled
	err             error
}

// measureIdle measures what the processes of each contestant use, one that leads all its
// elections and one that stands by in all. The elections of a process share a client.
func measureIdle(ctx context.Context, t testing.TB, p plan, sizes idleSizes, stores map[string]string) []*idle {
	results := make([]*idle, len(contestants))
	for i, c := range contestants {
		if stores[c.store] != "" && p.takes(c) && !c.freezeOnly && !c.deathsOnly && !c.variant {
			results[i] = &idle{leader: make([]idled, len(sizes)), standby: make([]idled, len(sizes))}
		}
	}
	for k, n := range sizes {
		for _, group := range groups(n) {
			var wg sync.WaitGroup
			for i, r := range results {
				c := contestants[i]
				if r == nil || group != "" && c.store != group || c.most > 0 && n > c.most {
					continue
				}
				m := measurement{plan: p, t: t, contestant: i, store: stores[c.store], role: role{Shared: true}}
				m.elections = n
				wg.Go(func() { r.err = errors.Join(r.err, m.idle(ctx, &r.leader[k], &r.standby[k])) })
			}
			wg.Wait()
		}
	}
	return results
}

// groups are the stores whose contestants are measured one after the other; "" is all of them.
func groups(elections int) []string {
	if elections <= together {
		return []string{""}
	}
	return []string{kubernetesStore, etcdStore, redisStore, consulStore}
}

// idle measures a leader and a standby while nothing happens.
func (m measurement) idle(ctx context.Context, leader, standby *idled) error {
	a, b, err := m.pair(ctx, fmt.Sprint(sceneIdle, m.elections, "-"))
	if err != nil {
		return fmt.Errorf("idle, %d elections: %w", m.elections, err)
	}
	defer a.kill()
	defer b.kill()
	var was [2]event
	for _, over := range []bool{false, true} {
		for i, p := range []*process{a, b} {
			now, err := p.ask(ctx)
			if err != nil {
				return err
			}
			if !over {
				was[i] = now
				continue
			}
			minutes := time.Duration(now.At - was[i].At).Minutes()
			*[]*idled{leader, standby}[i] = idled{
				cpu:      time.Duration(float64(now.Used.CPU-was[i].Used.CPU) / minutes),
				switches: float64(now.Used.Switches-was[i].Used.Switches) / minutes,
				memory:   now.Used.Memory,
			}
		}
		if !over {
			if err := sleep(ctx, m.window); err != nil {
				return err
			}
		}
	}
	if events, _ := b.look(); count(events, led) > 0 {
		return fmt.Errorf("%v, idle, %d elections: %d of them were lost: the machine is too busy, or the store", contestants[m.contestant], m.elections, count(events, led))
	}
	return nil
}

// count is how many events of a kind there are.
func count(events []event, what string) (n int) {
	for _, e := range events {
		if e.What == what {
			n++
		}
	}
	return n
}
