package sim

import (
	"errors"
	"math/rand/v2"
	"sync"

	le "github.com/c8e606e4/leaderelection"
)

// kernels are what the machines' kernels know of the lifelines of their processes. There are two
// machines: what a host is otherwise is a container there, with a clock of its own.
type kernels struct {
	mu      sync.Mutex
	files   map[string]*process // by incarnation
	watches map[*death]struct{}
}

// death is what somebody waits for.
type death struct {
	of   string
	by   *process
	tell func()
}

// lifeline is a process's le.Lifeline.
type lifeline struct{ p *process }

func (p *process) machine() int { return int(p.host.id[0]) % 2 }

var errNoLifeline = errors.New("sim: no room for a lifeline")

func (l lifeline) Live(incarnation string) error {
	k := &l.p.host.w.kernels
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case l.p.lifeless:
		return errNoLifeline
	case !l.p.actor.dead.Load():
		k.files[incarnation] = l.p
	}
	return nil
}

func (l lifeline) End(incarnation string) error {
	k := &l.p.host.w.kernels
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.files[incarnation] == l.p && !l.p.actor.dead.Load() {
		delete(k.files, incarnation)
	}
	return nil
}

func (l lifeline) Dead(incarnation string) bool {
	k := &l.p.host.w.kernels
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead(incarnation, l.p)
}

// dead reports whether the process of an incarnation is dead, as one on its machine can prove.
func (k *kernels) dead(incarnation string, by *process) bool {
	of := k.files[incarnation]
	return of != nil && of.actor.dead.Load() && of.machine() == by.machine()
}

func (l lifeline) OnDeath(incarnation string, tell func()) (stop func()) {
	k := &l.p.host.w.kernels
	k.mu.Lock()
	defer k.mu.Unlock()
	d := &death{incarnation, l.p, tell}
	k.watches[d] = struct{}{}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.watches, d)
	}
}

func (l lifeline) Bury(incarnation string) error {
	k := &l.p.host.w.kernels
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead(incarnation, l.p) {
		delete(k.files, incarnation)
	}
	return nil
}

// died tells those who wait for it that a process has.
func (k *kernels) died() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for d := range k.watches {
		if k.dead(d.of, d.by) {
			delete(k.watches, d)
			go d.tell()
		}
	}
}

// lifeline is what the process is given, if any: some have none, and of some nobody will ever
// prove that they are dead.
func (p *process) lifeline(rng *rand.Rand) le.Lifeline {
	if !p.host.w.Lifelines || rng.IntN(5) == 0 {
		return nil
	}
	p.lifeless = rng.IntN(8) == 0
	p.lifelined = true
	return lifeline{p}
}

// dies tells the specification of a death that somebody can prove.
func (r *recorder) dies(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range p.incarnations {
		if p.lifelined && !p.lifeless {
			r.spec.Died(r.epoch.Add(r.now()), i)
		}
	}
}

// proved reports whether p can have proof that nobody who lives holds the record e.
func (r *recorder) proved(p *process, e *le.RaceEntry) bool {
	if e.Vacant() || !p.lifelined {
		return false
	}
	for _, h := range p.host.w.hosts {
		for _, of := range h.all {
			if of.incarnations[e.Incarnation] && of != p {
				return of.actor.dead.Load() && of.lifelined && !of.lifeless && of.machine() == p.machine()
			}
		}
	}
	return false
}
