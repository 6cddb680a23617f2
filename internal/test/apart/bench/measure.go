package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// plan is how much is measured.
type plan struct {
	elections int            // at once in each process: the samples of each figure
	term      time.Duration  // the lease, the same for all; whole seconds
	window    time.Duration  // in which requests are counted
	only      *regexp.Regexp // the contestants: "name on store"; nil: all
}

// result is what was measured of one contestant; one value for each election.
type result struct {
	crash   []time.Duration // from the leader's death to the next one's start
	handed  []time.Duration // from the order to stop to the next one's start
	leader  float64         // requests in a minute
	standby float64
	err     error
}

// measure runs all contestants whose store has an address, all at the same time,
// and returns their results, in the same order; nil for the others.
func measure(t testing.TB, p plan, stores map[string]string) []*result {
	results := make([]*result, len(contestants))
	var wg sync.WaitGroup
	for i, c := range contestants {
		addr := stores[c.store]
		if addr == "" || p.only != nil && !p.only.MatchString(c.String()) {
			continue
		}
		r := new(result)
		results[i] = r
		m := measurement{plan: p, t: t, contestant: i, store: addr}
		wg.Go(func() {
			stopped := make(chan error)
			go func() { stopped <- m.stop(r) }()
			err := m.crash(r)
			r.err = errors.Join(err, <-stopped)
		})
	}
	wg.Wait()
	return results
}

// measurement measures one contestant.
type measurement struct {
	plan
	t          testing.TB
	contestant int
	store      string
}

// start starts a candidate process, whose candidates join one after the other over
// some time, so that they are not all in step.
func (m measurement) start(scene, id string, over time.Duration) (*process, error) {
	return startProcess(m.t, role{
		Contestant: m.contestant, Addr: m.store, Prefix: fmt.Sprint("bench-", scene, m.contestant), ID: id,
		Elections: m.elections, Term: m.term, Stagger: over / time.Duration(m.elections),
	})
}

// pair starts two candidate processes, and returns when the first leads everywhere
// and the second has stood by for a term.
func (m measurement) pair(scene string) (leader, standby *process, err error) {
	if leader, err = m.start(scene, "a", m.term); err != nil {
		return nil, nil, err
	}
	if err = m.leads(leader); err != nil {
		return nil, nil, err
	}
	if standby, err = m.start(scene, "b", m.term/2); err != nil {
		return nil, nil, err
	}
	if err = standby.await("joining", 2*m.term+startup, all(m.elections, joined)); err != nil {
		return nil, nil, err
	}
	return leader, standby, m.sleep(m.term)
}

// startup is how long a process may take to start on a busy machine.
const startup = 2 * time.Minute

// leads returns when a process leads all its elections.
func (m measurement) leads(p *process) error {
	return p.await("leading everywhere", 4*m.term+startup, all(m.elections, led))
}

// inPeace measures until no election had lost its leader before it was to, as on a machine too busy for
// the term, and at most three times.
func inPeace(measure func() (took []time.Duration, err error)) (took []time.Duration, err error) {
	for range 3 {
		if took, err = measure(); err != nil || len(took) == 0 || slices.Min(took) >= 0 {
			break
		}
	}
	return took, err
}

// crash counts requests, and kills the leader.
func (m measurement) crash(r *result) (err error) {
	r.crash, err = inPeace(func() ([]time.Duration, error) {
		a, b, err := m.pair("crash")
		if err != nil {
			return nil, err
		}
		if err := m.count(r, a, b); err != nil {
			return nil, err
		}
		a.kill()
		if err := m.leads(b); err != nil {
			return nil, fmt.Errorf("after a crash: %w", err)
		}
		var took []time.Duration
		for _, t := range at(b.events(), m.elections, led) {
			took = append(took, t.Sub(a.killed.Round(0)))
		}
		b.kill()
		return took, nil
	})
	return err
}

// stop has the leader stop in order.
func (m measurement) stop(r *result) (err error) {
	r.handed, err = inPeace(func() (took []time.Duration, err error) {
		a, b, err := m.pair("stop")
		if err != nil {
			return nil, err
		}
		if err := a.Tell(orderStop); err != nil {
			return nil, err
		}
		if err := m.leads(b); err != nil {
			return nil, fmt.Errorf("after a stop: %w", err)
		}
		from, to := at(a.events(), m.elections, stopped), at(b.events(), m.elections, led)
		for i := range from {
			if from[i].IsZero() { // it had lost its lease before
				from[i] = to[i].Add(1)
			}
			took = append(took, to[i].Sub(from[i]))
		}
		a.kill()
		b.kill()
		return took, nil
	})
	return err
}

// count counts the requests of a leader and a standby with nothing happening.
func (m measurement) count(r *result, leader, standby *process) error {
	counted := func() (n [2]int64, err error) {
		for i, p := range []*process{leader, standby} {
			if n[i], err = p.ask(); err != nil {
				return n, err
			}
		}
		return n, nil
	}
	was, err := counted()
	if err != nil {
		return err
	}
	if err := m.sleep(m.window); err != nil {
		return err
	}
	is, err := counted()
	each := float64(m.elections) * m.window.Minutes()
	r.leader, r.standby = float64(is[0]-was[0])/each, float64(is[1]-was[1])/each
	return err
}

func (m measurement) sleep(d time.Duration) error {
	if ctx := m.t.Context(); !clocks.System().SleepFor(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// quantile returns the q-quantile of d.
func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[min(int(q*float64(len(d))), len(d)-1)]
}
