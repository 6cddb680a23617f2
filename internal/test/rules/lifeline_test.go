//go:build go1.25

package rules

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// kernel is what a machine's kernel knows of its processes' lifelines.
type kernel struct {
	mu      sync.Mutex
	files   map[string]*process // by incarnation
	watches []func()
	buried  []string
	ended   []string
}

// process is one of a machine's. It is the Lifeline of its campaigns.
type process struct {
	k     *kernel
	dead  bool
	last  string // a name that has ended and is kept until there is another: a file without a name gets none
	lost  error  // its descriptor was closed
	asked int    // how often Dead was
}

func newKernel() *kernel { return &kernel{files: map[string]*process{}} }

func (k *kernel) process() *process { return &process{k: k} }

func (p *process) Live(name string) error {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	if p.lost != nil {
		return p.lost
	}
	p.k.files[name] = p
	if p.last != name {
		delete(p.k.files, p.last)
	}
	p.last = ""
	return nil
}

func (p *process) End(name string) error {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	if p.k.files[name] != p {
		return nil
	}
	p.k.ended = append(p.k.ended, name)
	for other, of := range p.k.files {
		if of == p && other != name || p.lost != nil {
			delete(p.k.files, name)
			return nil
		}
	}
	p.last = name
	return nil
}

func (p *process) Dead(name string) bool {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	p.asked++
	return p.k.files[name] != nil && p.k.files[name].dead
}

func (p *process) OnDeath(name string, tell func()) (stop func()) {
	var over atomic.Bool
	look := func() {
		if p.Dead(name) && over.CompareAndSwap(false, true) {
			go tell()
		}
	}
	p.k.mu.Lock()
	p.k.watches = append(p.k.watches, look)
	p.k.mu.Unlock()
	look()
	return func() { over.Store(true) }
}

func (p *process) Bury(name string) error {
	if p.Dead(name) {
		p.k.mu.Lock()
		defer p.k.mu.Unlock()
		delete(p.k.files, name)
		p.k.buried = append(p.k.buried, name)
	}
	return nil
}

// die is the end of the process.
func (p *process) die() {
	p.k.mu.Lock()
	p.dead = true
	watches := slices.Clone(p.k.watches)
	p.k.mu.Unlock()
	for _, look := range watches {
		look()
	}
}

// kill ends m's process: its store hears nothing more of it, and its kernel knows.
func (p *process) kill(m *member) {
	m.store.Inject(memory.LoseRequests())
	p.die()
}

// lifelined gives a candidate a lifeline.
func lifelined(p *process) func(*config) { return func(c *config) { c.Lifeline = p } }

// pair is a leader and a standby on one machine.
func pair(t *testing.T, adjust ...func(*config)) (d *memory.Decider, a, b *member, of *process, k *kernel) {
	d, k = memory.NewDecider(), newKernel()
	of = k.process()
	a = join(t, d, "a", append(adjust, lifelined(of))...)
	sleep(time.Second)
	a.leads(t)
	b = join(t, d, "b", append(adjust, lifelined(k.process()))...)
	sleep(time.Minute)
	a.leads(t)
	return d, a, b, of, k
}

var lifelineStyles = map[string]func(*config){
	"pushed": func(*config) {}, "polled": polled,
	"unsynchronized":        func(c *config) { c.ClockPolicy = le.Unsynchronized },
	"unsynchronized polled": func(c *config) { c.ClockPolicy = le.Unsynchronized; polled(c) },
}

// Lifelines, rule 2: the record of one whose death is proved is acquired at once, by a newer
// number, after a read that shows that the dead one holds it.
func TestLifeline02AcquiredAtOnce(t *testing.T) {
	for name, style := range lifelineStyles {
		scene(t, name, func(t *testing.T) {
			_, a, b, of, k := pair(t, style)
			died, number := time.Now(), a.View().ElectionNumber()
			of.kill(a)
			sleep(time.Millisecond)
			b.leads(t)
			if got := b.View().ElectionNumber(); got != number+1 {
				t.Errorf("token %d after %d", got, number)
			}
			if reads, writes := b.opsSince(died, le.OpRead), b.opsSince(died, le.OpAcquire); len(reads) > 1 || len(writes) != 1 || len(b.opsSince(died)) != len(reads)+1 {
				t.Errorf("%d operations, want one read at most and one write: %v", len(b.opsSince(died)), b.opsSince(died))
			}
			if want := a.Leader().Incarnation; !slices.Contains(k.buried, want) {
				t.Errorf("%q was not buried: %v", want, k.buried)
			}
		})
	}
}

// A process that is started again needs two requests.
func TestLifeline02StartedAgain(t *testing.T) {
	for name, style := range lifelineStyles {
		scene(t, name, func(t *testing.T) {
			d, k := memory.NewDecider(), newKernel()
			of := k.process()
			a := join(t, d, "a", style, lifelined(of))
			sleep(time.Minute)
			of.kill(a)
			sleep(100 * time.Millisecond)
			again := join(t, d, "a", style, lifelined(k.process()))
			sleep(time.Millisecond)
			again.leads(t)
			if ops := again.opsSince(time.Time{}); len(ops) > 3 { // a pushing store has told of the record before it is read
				t.Errorf("%d operations: %v", len(ops), ops)
			}
			if c, err := (le.Config{Decider: d.Handle(), LeaderID: "c", TermLength: T, MaxClockSkew: S, Lifeline: k.process()}).TryAcquire(t.Context()); !errors.Is(err, le.ErrNotElected) {
				t.Errorf("another was elected beside the living: %v, %v", c, err)
			}
		})
	}
}

// TryAcquire looks once: the kernel's answer is there by then.
func TestLifeline02TryAcquire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, k := memory.NewDecider(), newKernel()
		of := k.process()
		a := join(t, d, "a", lifelined(of))
		sleep(time.Minute)
		of.kill(a)
		ctx, cancel := context.WithCancel(t.Context())
		c, err := le.Config{Decider: d.Handle(), LeaderID: "c", TermLength: T, MaxClockSkew: S, Lifeline: k.process()}.TryAcquire(ctx)
		must(t, err)
		cancel()
		<-c.Done()
	})
}

// Lifelines, rule 1: without a proof the term is waited for: of a process without a lifeline, of
// one on another machine, of one that was stopped and lives, of one whose name is gone.
func TestLifeline01NoProof(t *testing.T) {
	for name, f := range map[string]struct {
		line func(k *kernel) *process
		end  func(p *process, m *member)
	}{
		"another machine": {func(*kernel) *process { return newKernel().process() }, (*process).kill},
		"it lives, and is cut off": {(*kernel).process, func(p *process, m *member) {
			m.store.Inject(memory.LoseRequests())
		}},
		"its name is gone": {(*kernel).process, func(p *process, m *member) {
			p.k.mu.Lock()
			delete(p.k.files, m.Leader().Incarnation)
			p.k.mu.Unlock()
			p.kill(m)
		}},
	} {
		scene(t, name, func(t *testing.T) {
			d, k := memory.NewDecider(), newKernel()
			of := f.line(k)
			a := join(t, d, "a", lifelined(of))
			sleep(time.Second)
			b := join(t, d, "b", lifelined(k.process()))
			sleep(time.Minute)
			a.leads(t)
			until := d.Entry().TermExpiry.Add(S)
			f.end(of, a)
			sleep(time.Until(until) - time.Millisecond)
			b.follows(t)
			sleep(time.Second)
			b.leads(t)
		})
	}
}

// Lifelines, rule 4: a process is not dead while it asks.
func TestLifeline04OwnProcessLives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, k := memory.NewDecider(), newKernel()
		of := k.process()
		a := join(t, d, "a", lifelined(of))
		sleep(time.Second)
		b := join(t, d, "b", lifelined(of))
		until := d.Entry().TermExpiry
		a.store.Inject(memory.LoseRequests())
		sleep(time.Until(until))
		b.follows(t)
		sleep(2 * T)
		b.leads(t)
	})
}

// Lifelines, rule 6: before each write of the lease it is looked whether this process's own death
// can be proved. If not, nothing of it is left that could prove it falsely.
func TestLifeline06LostDescriptor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, a, b, of, k := pair(t)
		k.mu.Lock()
		of.lost = errors.New("closed by somebody else")
		k.mu.Unlock()
		sleep(T)
		a.leads(t)
		until := d.Entry().TermExpiry.Add(S)
		of.kill(a)
		sleep(time.Until(until) - time.Millisecond)
		b.follows(t)
		sleep(time.Second)
		b.leads(t)
	})
}

// Lifelines, rule 8: in calm the store is asked nothing more.
func TestLifeline08Calm(t *testing.T) {
	count := func(line bool) (ops int) {
		bubble(t, func(t *testing.T) {
			d, k := memory.NewDecider(), newKernel()
			with := func(c *config) {
				if line {
					c.Lifeline = k.process()
				}
			}
			a := join(t, d, "a", polled, with)
			sleep(time.Second)
			b := join(t, d, "b", polled, with)
			sleep(time.Hour)
			ops = len(a.opsSince(time.Time{})) + len(b.opsSince(time.Time{}))
		})
		return ops
	}
	if with, without := count(true), count(false); with != without {
		t.Errorf("%d operations in an hour, %d without", with, without)
	}
}

// A campaign that ends in order leaves no name behind.
func TestLifelineEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, a, _, _, k := pair(t)
		of := a.Leader().Incarnation
		a.quit()
		if !slices.Contains(k.ended, of) {
			t.Errorf("%q has not ended: %v", of, k.ended)
		}
	})
}

// A nil pointer counts as no lifeline.
func TestLifelineNil(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var none *process
		leader(t, lifelined(none))
	})
}
