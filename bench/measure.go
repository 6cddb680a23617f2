package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// plan is how much is measured.
type plan struct {
	elections int            // at once in each process: the samples of each figure
	term      time.Duration  // the lease, the same for all; whole seconds
	window    time.Duration  // in which requests are counted
	rtt       time.Duration  // what a store takes to answer, at least, when deaths are measured
	only      *regexp.Regexp // the contestants: "name on store"; nil: all
}

// takes reports whether a contestant is measured.
func (p plan) takes(c contestant) bool { return p.only == nil || p.only.MatchString(c.String()) }

// result is what was measured of one contestant; one value for each election.
type result struct {
	crash   []time.Duration // from the leader's death to the next one's start
	handed  []time.Duration // from the order to stop to the next one's start
	leader  float64         // requests in a minute
	standby float64
	paused  overlaps        // the leader's process stood still until another led, and a second more
	frozen  overlaps        // nothing went through between the leader and the store
	clung   []time.Duration // from then to the end of the library's signal
	stuck   int             // in so many of them it had not ended when the process was killed
	err     error
}

// overlaps is for how long an old leader still believed after the next one began:
// by the library's signal, and by its predicate.
type overlaps struct{ told, asked []time.Duration }

// measure runs all contestants whose store has an address, all at the same time,
// and returns their results, in the same order; nil for the others.
func measure(ctx context.Context, t testing.TB, p plan, stores map[string]string) []*result {
	results := make([]*result, len(contestants))
	var wg sync.WaitGroup
	for i, c := range contestants {
		addr := stores[c.store]
		if addr == "" || !p.takes(c) || c.idleOnly || c.deathsOnly {
			continue
		}
		r := new(result)
		results[i] = r
		m := measurement{plan: p, t: t, contestant: i, store: addr}
		errs := make([]error, 4)
		wg.Go(func() {
			var each sync.WaitGroup
			each.Go(func() { errs[0] = m.freeze(ctx, r) })
			if !c.freezeOnly {
				each.Go(func() { errs[1] = m.pause(ctx, r) })
				each.Go(func() { errs[2] = m.crash(ctx, r) })
				each.Go(func() { errs[3] = m.stop(ctx, r) })
			}
			each.Wait()
			r.err = errors.Join(errs...)
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
	role       role        // what the scene adds to those of its processes
	lifeline   string      // the directory of its processes' lifelines, when deaths are measured; "": they have none
	quiet      *sync.Mutex // held while something is measured in milliseconds
}

// start starts a candidate process, whose candidates join one after the other over
// some time, so that they are not all in step.
func (m measurement) start(ctx context.Context, scene, id string, over time.Duration) (*process, error) {
	r := m.role
	r.Contestant, r.Prefix, r.ID = m.contestant, fmt.Sprint("bench-", scene, m.contestant), id
	r.Elections, r.Term, r.Stagger = m.elections, m.term, over/time.Duration(m.elections)
	r.Sample = r.Sample || scene == sceneFreeze || scene == scenePause
	return startProcess(ctx, m.t, r, m.store, m.rtt)
}

// The scenes, each of which has candidates and elections of its own.
const (
	sceneCrash  = "crash"
	sceneStop   = "stop"
	scenePause  = "pause"
	sceneFreeze = "freeze"
	sceneIdle   = "idle"
	sceneStore  = "store"
)

// pair starts two candidate processes, and returns when the first leads everywhere
// and the second has stood by for a term.
func (m measurement) pair(ctx context.Context, scene string) (leader, standby *process, err error) {
	if leader, err = m.start(ctx, scene, firstID, m.term); err != nil {
		return nil, nil, err
	}
	if err = m.leads(ctx, leader); err != nil {
		return nil, nil, err
	}
	if standby, err = m.start(ctx, scene, "b", m.term/2); err != nil {
		return nil, nil, err
	}
	if err = standby.await(ctx, "joining", 2*m.term+startup, all(m.elections, joined)); err != nil {
		return nil, nil, err
	}
	return leader, standby, sleep(ctx, m.term)
}

// startup is how long a process may take to start on a busy machine.
const startup = 2 * time.Minute

// leads returns when a process leads all its elections.
func (m measurement) leads(ctx context.Context, p *process) error {
	return p.await(ctx, "leading everywhere", 4*m.term+startup, all(m.elections, led))
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
func (m measurement) crash(ctx context.Context, r *result) (err error) {
	r.crash, err = inPeace(func() ([]time.Duration, error) {
		a, b, err := m.pair(ctx, sceneCrash)
		if err != nil {
			return nil, err
		}
		if err := m.count(ctx, r, a, b); err != nil {
			return nil, err
		}
		a.kill()
		if err := m.leads(ctx, b); err != nil {
			return nil, fmt.Errorf("after a crash: %w", err)
		}
		took := since(a.killed, b, m.elections)
		b.kill()
		return took, nil
	})
	return err
}

// stop has the leader stop in order.
func (m measurement) stop(ctx context.Context, r *result) (err error) {
	r.handed, err = inPeace(func() (took []time.Duration, err error) {
		a, b, err := m.pair(ctx, sceneStop)
		if err != nil {
			return nil, err
		}
		if err := a.order(orderStop); err != nil {
			return nil, err
		}
		if err := m.leads(ctx, b); err != nil {
			return nil, fmt.Errorf("after a stop: %w", err)
		}
		was, _ := a.look()
		is, _ := b.look()
		from, to := at(was, m.elections, stopped), at(is, m.elections, led)
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

// since returns how long after a time a process began to lead each election.
func since(from time.Time, p *process, elections int) (took []time.Duration) {
	events, _ := p.look()
	for _, t := range at(events, elections, led) {
		took = append(took, t.Sub(from.Round(0)))
	}
	return took
}

// count counts the requests of a leader and a standby with nothing happening.
func (m measurement) count(ctx context.Context, r *result, leader, standby *process) error {
	r.leader, r.standby = 0, 0
	for _, x := range []struct {
		p   *process
		sum *float64
		by  float64
	}{{leader, &r.leader, -1}, {standby, &r.standby, -1}, {nil, nil, 0}, {leader, &r.leader, 1}, {standby, &r.standby, 1}} {
		if x.p == nil {
			if err := sleep(ctx, m.window); err != nil {
				return err
			}
			continue
		}
		said, err := x.p.ask(ctx)
		if err != nil {
			return err
		}
		*x.sum += x.by * float64(said.N) / float64(m.elections) / m.window.Minutes()
	}
	return nil
}

// pause stops the leader's process until the standby leads, and lets it go on.
func (m measurement) pause(ctx context.Context, r *result) error {
	a, b, err := m.pair(ctx, scenePause)
	if err != nil {
		return err
	}
	if err := a.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := m.leads(ctx, b); err != nil {
		return fmt.Errorf("with the leader's process stopped: %w", err)
	}
	if err := sleep(ctx, m.term/15); err != nil {
		return err
	}
	if err := a.signal(syscall.SIGCONT); err != nil {
		return err
	}
	r.paused, err = m.overlaps(ctx, a, b)
	return err
}

// freeze cuts the leader off from the store.
func (m measurement) freeze(ctx context.Context, r *result) error {
	a, b, err := m.pair(ctx, sceneFreeze)
	if err != nil {
		return err
	}
	a.proxy.Cut()
	cut := time.Now()
	if err := m.leads(ctx, b); err != nil {
		return fmt.Errorf("with the leader cut off: %w", err)
	}
	r.frozen, err = m.overlaps(ctx, a, b)
	events, _ := a.look()
	for i := range m.elections {
		if s := spans(events, i, told, a.killed); len(s) > 0 {
			last := s[len(s)-1].to
			r.clung = append(r.clung, last.Sub(cut.Round(0)))
			if last.Equal(a.killed) {
				r.stuck++
			}
		}
	}
	return err
}

// overlaps waits until the old leader no longer believes, or two terms, and returns
// for how long it did beside the next one. Both processes are killed.
func (m measurement) overlaps(ctx context.Context, old, next *process) (overlaps, error) {
	over := time.Now().Add(2 * m.term)
	for {
		err := old.await(ctx, "giving up", time.Until(over), believesNot)
		if ctx.Err() != nil {
			return overlaps{}, err
		}
		if _, err := old.ask(ctx); err != nil { // what it was about to say is said
			return overlaps{}, err
		}
		if events, _ := old.look(); believesNot(events) || err != nil {
			break
		}
	}
	old.kill()
	next.kill()
	was, _ := old.look()
	is, _ := next.look()
	var o overlaps
	for i := range m.elections {
		o.told = append(o.told, overlap(spans(was, i, told, old.killed), spans(is, i, told, next.killed)))
		o.asked = append(o.asked, overlap(spans(was, i, asked, old.killed), spans(is, i, asked, next.killed)))
	}
	return o, nil
}

// believesNot reports whether a process believes no longer that it leads anything.
func believesNot(events []event) bool {
	type which struct {
		election int
		what     string
	}
	last := map[which]bool{}
	for _, e := range events {
		if e.What == told || e.What == asked {
			last[which{e.Election, e.What}] = e.On
		}
	}
	for _, on := range last {
		if on {
			return false
		}
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) error {
	if !clocks.System().SleepFor(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// quantile returns the q-quantile of d.
func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[min(int(q*float64(len(d))), len(d)-1)]
}
