package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/lifeline"
)

// deaths is how long after the death of the leader's process another led; one value for each election.
type deaths struct {
	beside     []time.Duration // a standby on its machine, after SIGKILL
	panicked   []time.Duration // the same after a panic
	again      []time.Duration // the process was started again at once, with no standby
	undertaken []time.Duration // a standby of another machine; an undertaker on the leader's
	elsewhere  []time.Duration // a standby of another machine
	err        error
}

// death is one way to die.
type death struct {
	scene      string
	far        bool // the standby is on another machine, so it has no lifeline
	undertaker bool // a process that leads nothing watches the lifelines of the leader's machine
	panics     bool
	again      bool // there is no standby: the process is started again
}

// measureDeaths measures all contestants whose store has an address. Each store answers after
// rtt at the soonest.
func measureDeaths(ctx context.Context, t *testing.T, p plan, addrs map[string]string) ([]*deaths, error) {
	results := make([]*deaths, len(contestants))
	dir, err := lifelines(t)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var quiet sync.Mutex // held while a leader dies whose successor is to be fast
	for i, c := range contestants {
		if addrs[c.store] == "" || !p.takes(c) || c.freezeOnly || c.idleOnly || c.variant {
			continue
		}
		r := new(deaths)
		results[i] = r
		m := measurement{plan: p, t: t, contestant: i, store: addrs[c.store], quiet: &quiet}
		ways := map[death]*[]time.Duration{
			{scene: "death"}:               &r.beside,
			{scene: "panic", panics: true}: &r.panicked,
			{scene: "again", again: true}:  &r.again,
		}
		if c.library == module {
			m.lifeline = dir
			ways[death{scene: "under", far: true, undertaker: true}] = &r.undertaken
			ways[death{scene: "far", far: true}] = &r.elsewhere
		}
		wg.Go(func() { r.err = m.die(ctx, ways) })
	}
	wg.Wait()
	return results, nil
}

// lifelines makes a directory for lifelines, in memory.
func lifelines(t *testing.T) (string, error) {
	dir, err := os.MkdirTemp("/dev/shm", "leaderelection-bench-")
	if err != nil {
		return "", fmt.Errorf("deaths are measured on Linux alone: %w", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a directory in memory that is left over does no harm
	line, err := lifeline.Dir(dir)
	if err == nil {
		err = line.Close()
	}
	return dir, err
}

func (m measurement) die(ctx context.Context, ways map[death]*[]time.Duration) error {
	var wg sync.WaitGroup
	errs := make(chan error, len(ways))
	for way, took := range ways {
		wg.Go(func() {
			var err error
			if *took, err = inPeace(func() ([]time.Duration, error) { return m.dies(ctx, way) }); err != nil {
				errs <- fmt.Errorf("%s: %w", way.scene, err)
			}
		})
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// dies has a leader die in this way, and returns how long it took in each election until another led.
func (m measurement) dies(ctx context.Context, way death) (took []time.Duration, err error) {
	m.role.Lifeline = m.lifeline
	a, err := m.start(ctx, way.scene, firstID, m.term)
	if err != nil {
		return nil, err
	}
	if err := m.leads(ctx, a); err != nil {
		return nil, err
	}
	started := []*process{a}
	defer func() {
		for _, p := range started {
			p.kill()
		}
	}()
	if way.undertaker {
		u := m
		u.role.Undertake = true
		p, err := u.start(ctx, way.scene, "u", 0)
		if err != nil {
			return nil, err
		}
		started = append(started, p)
	}
	next := a
	if !way.again {
		b := m
		if way.far {
			b.role.Lifeline = ""
		}
		if next, err = b.start(ctx, way.scene, "b", m.term/2); err != nil {
			return nil, err
		}
		started = append(started, next)
		if err := next.await(ctx, "joining", 2*m.term+startup, all(m.elections, joined)); err != nil {
			return nil, err
		}
	}
	if err := sleep(ctx, m.term); err != nil {
		return nil, err
	}
	if m.lifeline != "" && (!way.far || way.undertaker) {
		m.quiet.Lock()
		defer m.quiet.Unlock()
	}
	died, err := a.dies(ctx, way.panics)
	if err != nil {
		return nil, err
	}
	if way.again {
		if next, err = m.start(ctx, way.scene, "a-again", 0); err != nil { // under an id of its own, as with a UUID in it
			return nil, err
		}
		started = append(started, next)
	}
	if err := m.leads(ctx, next); err != nil {
		return nil, fmt.Errorf("after its leader's death: %w", err)
	}
	return since(died, next, m.elections), nil
}

// dies ends the process, and returns the last instant at which it surely lived.
func (p *process) dies(ctx context.Context, panics bool) (time.Time, error) {
	if !panics {
		p.kill()
		return p.killed, nil
	}
	if err := p.order(orderPanic); err != nil {
		return time.Time{}, err
	}
	if err := p.await(ctx, "panicking", startup, func(events []event) bool { return count(events, gone) > 0 }); err != nil {
		return time.Time{}, err
	}
	events, _ := p.look()
	return at(events, 1, stopped)[0], nil
}
