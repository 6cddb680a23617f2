package plan

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// trial is the real campaign of a Choice, in virtual time, on a store that answers
// after Store.Latency.
type trial struct {
	c       Choice
	rand    *rand.Rand
	off     time.Duration // of each clock, either way
	actors  []*actor
	gone    chan struct{} // closed: what hangs goes on
	reads   atomic.Int64
	writes  atomic.Int64
	elected chan *actor  // each new leader
	lost    atomic.Bool  // some leader's ctx has ended
	begun   atomic.Int64 // when the last write was requested, in Unix nanoseconds
}

type actor struct {
	store *memory.Decider
	fault atomic.Pointer[memory.Fault] // what meets each call from now on
	line  *line                        // nil: none
	stop  context.CancelFunc
	done  <-chan struct{}
}

// start starts all candidates, and returns when one leads.
func (c Choice) start(t *testing.T, seed uint64, off time.Duration, run func(*trial, *actor)) {
	c.try(t, seed, off, func(t *testing.T, x *trial, store *memory.Decider) {
		for i := range c.Candidates {
			x.join(t, i, store, nil)
		}
	}, run)
}

// try has candidates join, and runs what is tried when one leads.
func (c Choice) try(t *testing.T, seed uint64, off time.Duration, join func(*testing.T, *trial, *memory.Decider), run func(*trial, *actor)) {
	synctest.Test(t, func(t *testing.T) {
		x := &trial{c: c, off: off, rand: rand.New(rand.NewPCG(1, seed)), gone: make(chan struct{}), elected: make(chan *actor, 9)}
		join(t, x, memory.NewDecider())
		run(x, <-x.elected)
		close(x.gone)
		for _, a := range x.actors {
			a.fault.Store(nil)
			a.stop()
		}
		for _, a := range x.actors {
			<-a.done
		}
	})
}

func (x *trial) join(t *testing.T, i int, store *memory.Decider, l *line) {
	c, a := x.c, &actor{store: store.Handle(), line: l}
	off := x.off * time.Duration(2*x.rand.IntN(2)-1)
	if c.Clocks == leaderelection.Unsynchronized {
		off *= 1000
	}
	a.store.Inject(func(op memory.Op) memory.Fault {
		switch op.Kind {
		case memory.Read:
			x.reads.Add(1)
		case memory.Write:
			x.writes.Add(1)
			x.begun.Store(time.Now().UnixNano())
		}
		if f := a.fault.Load(); f != nil {
			return *f
		}
		return memory.Fault{Delay: c.Store.Latency / 2, AnswerDelay: c.Store.Latency / 2}
	})
	var d leaderelection.RaceDecider = a.store
	if !c.Store.Pushes {
		d = a.store.Polled()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cfg := leaderelection.Config{
		Decider: d, LeaderID: fmt.Sprint("c", i), TermLength: c.Term, MaxClockSkew: c.Skew,
		PollInterval: c.Poll, ExtendEvery: c.Every, ClockPolicy: c.Clocks, Clock: clocks.NewOffset(clocks.System(), off),
		OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
			x.elected <- a
			<-ctx.Done()
			x.lost.Store(true)
		},
	}
	if l != nil {
		cfg.Lifeline = l
	}
	campaign, err := cfg.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a.stop, a.done = cancel, campaign.Done()
	x.actors = append(x.actors, a)
}

func choices() map[string]Choice {
	of := func(store string) Choice {
		return Choice{Term: 15 * time.Second, Skew: time.Second, Candidates: 3, Store: *Lookup(store)}
	}
	all := map[string]Choice{"polled": of("gs"), "pushed": of("nats")}
	c := of("file")
	c.Skew, c.Clocks, c.Term, c.Candidates = 0, leaderelection.SharedClock, 4*time.Second, 2
	all["one machine"] = c
	c = of("gs")
	c.Skew, c.Poll = 100*time.Millisecond, 2*time.Second
	all["polled often"] = c
	for name, every := range map[string]time.Duration{"a third": 5 * time.Second, "a quarter": 4 * time.Second, "a twentieth": 750 * time.Millisecond} {
		c := of("nats")
		c.Every = every
		all["extended after "+name] = c
	}
	for _, s := range []string{"gs", "nats"} {
		c := of(s)
		c.Clocks = leaderelection.Unsynchronized
		all["unsynchronized on "+s] = c
	}
	return all
}

// What the formulas say is what the campaign does, whenever a leader dies or goes: in the
// middle with clocks that are right, at the ends with clocks that are off by all of Skew.
func TestFailOver(t *testing.T) {
	stores.Nightly(t, "half a minute of simulation for each setting")
	for name, c := range choices() {
		t.Run(name, func(t *testing.T) {
			r := c.Work()
			for _, crash := range []bool{true, false} {
				var right, off []time.Duration
				// So many that one is near each end: of 40, none was in one run of some hundred.
				for i := range uint64(120) {
					right = append(right, c.failOver(t, i, 0, crash))
					off = append(off, c.failOver(t, i, c.Skew, crash))
				}
				slices.Sort(right)
				slices.Sort(off)
				want := map[bool]Span{true: r.Crash, false: r.HandOver}[crash]
				got := Span{off[0], right[len(right)/2], off[len(off)-1]}
				near := (want.Max-want.Min)/4 + time.Millisecond
				if got.Min < want.Min || got.Min > want.Min+near || got.Max > want.Max || got.Max < want.Max-near || (got.Median-want.Median).Abs() > near {
					t.Errorf("crash: %v: %v, planned %v", crash, got, want)
				}
			}
		})
	}
}

// failOver is how long nobody leads after the leader has crashed, or gone by choice.
func (c Choice) failOver(t *testing.T, seed uint64, off time.Duration, crash bool) (took time.Duration) {
	c.start(t, seed, off, func(x *trial, leader *actor) {
		time.Sleep(c.Term + time.Duration(x.rand.Float64()*float64(12*c.Term)))
		begin := time.Now()
		if crash {
			leader.fault.Store(&memory.Fault{Hang: x.gone, Err: errors.New("gone")})
		} else {
			leader.stop()
		}
		<-x.elected
		took = time.Since(begin)
	})
	return took
}

// An outage of the length planned loses no leader, whenever it begins; a longer one that
// begins when an extension is due may.
func TestOutage(t *testing.T) {
	for name, c := range choices() {
		t.Run(name, func(t *testing.T) {
			r := c.Work()
			lost := func(length time.Duration, share float64, f memory.Fault) (lost bool) {
				c.start(t, 0, c.Skew, func(x *trial, leader *actor) {
					time.Sleep(2 * c.Term)
					time.Sleep(time.Until(time.Unix(0, x.begun.Load()).Add(time.Duration(share * float64(c.Extend())))))
					if f.Err == nil {
						f.Hang, f.Err = x.gone, errors.New("silent")
					}
					leader.fault.Store(&f)
					time.Sleep(length)
					leader.fault.Store(nil)
					time.Sleep(c.Term)
					lost = x.lost.Load()
				})
				return lost
			}
			for _, refused := range []bool{false, true} {
				length, f := r.Silent, memory.Fault{}
				if refused {
					length, f = r.Refused, memory.Fault{Err: errors.New("refused")}
				}
				for _, share := range []float64{0.1, 0.5, 0.9, 0.99, 0.999} {
					if lost(length, share, f) {
						t.Errorf("an outage of %v (refused: %v) at %v of the interval loses the leader", length, refused, share)
					}
				}
				if longer := map[bool]time.Duration{false: length + length/8, true: c.Term - c.Skew - c.Extend()}[refused]; !lost(longer, 0.999, f) {
					t.Errorf("an outage of %v (refused: %v) loses no leader", longer, refused)
				}
			}
		})
	}
}

// The operations of an hour in which nothing happens.
func TestOperations(t *testing.T) {
	for name, c := range choices() {
		t.Run(name, func(t *testing.T) {
			r := c.Work()
			c.start(t, 0, c.Skew, func(x *trial, _ *actor) {
				time.Sleep(c.Term)
				reads, writes := x.reads.Load(), x.writes.Load()
				time.Sleep(time.Hour)
				share := month.Hours()
				near := func(what string, got int64, want float64) {
					if g := float64(got) * share; g < want*0.97 || g > want*1.03 {
						t.Errorf("%.0f %s a month, planned %.0f", g, what, want)
					}
				}
				near("reads", x.reads.Load()-reads, r.Reads)
				near("writes", x.writes.Load()-writes, r.Writes)
			})
			want := r.Reads * float64(c.Candidates+1) / float64(c.Candidates-1)
			if c.Candidates += 2; c.Work().Reads != want {
				t.Errorf("with two standbys more %v reads, want %v", c.Work().Reads, want)
			}
		})
	}
}

// What is bad about a choice is said, and nothing of a good one.
func TestWarnings(t *testing.T) {
	good := Choice{Term: 15 * time.Second, Skew: time.Second, Candidates: 3, Store: *Lookup("gs")}
	for want, change := range map[string]func(*Choice){
		"":                              func(*Choice) {},
		"for candidates on one machine": func(c *Choice) { c.Clocks, c.Skew = leaderelection.SharedClock, 0 },
		"less than most machines":       func(c *Choice) { c.Skew = time.Millisecond },
		"--clocks shared shortens":      func(c *Choice) { c.Store = *Lookup("file") },
		"shortens every fail-over":      func(c *Choice) { c.Store, c.Clocks = *Lookup("file"), leaderelection.Unsynchronized },
		"slow answers will cost":        func(c *Choice) { c.Store.Latency = time.Second },
		"is near what gs allows":        func(c *Choice) { c.Term, c.Skew = 3*time.Second, 500*time.Millisecond },
		"more than a quarter":           func(c *Choice) { c.Skew = 4 * time.Second },
		"nobody leads for 1m32":         func(c *Choice) { c.Term = 2 * time.Minute },
		"polling each 1s costs 5256000": func(c *Choice) { c.Poll = time.Second },
	} {
		c := good
		change(&c)
		switch got := c.Warnings(); {
		case want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
			t.Errorf("%+v: %q, want one with %q", c, got, want)
		}
	}
}

// machine knows which processes are dead, as a kernel does.
type machine struct {
	mu   sync.Mutex
	dead map[string]bool
	told map[string][]func()
}

// line is the lifeline of a process.
type line struct {
	*machine
	names []string
}

func (l *line) Live(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.names, name) {
		l.names = append(l.names, name)
	}
	return nil
}

func (*line) End(string) error  { return nil }
func (*line) Bury(string) error { return nil }

func (m *machine) Dead(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead[name]
}

func (m *machine) OnDeath(name string, tell func()) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told[name] = append(m.told[name], tell)
	return func() {}
}

func (l *line) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.names {
		l.dead[name] = true
		for _, tell := range l.told[name] {
			go tell()
		}
	}
}

// The campaign does what the formulas say of a process that has a lifeline, if a standby is on its machine.
func TestLifelines(t *testing.T) {
	stores.Nightly(t, "half a minute of simulation for each setting")
	for name, c := range choices() {
		t.Run(name, func(t *testing.T) {
			want := c.Work().Standby
			var took []time.Duration
			for i := range uint64(120) {
				took = append(took, c.died(t, i))
			}
			slices.Sort(took)
			got := Span{took[0], took[len(took)/2], took[len(took)-1]}
			near := want.Max - want.Min // each of the few requests is one more or less
			if got.Min < want.Min || got.Min > want.Min+near || got.Max > want.Max || got.Max < want.Max-near || (got.Median-want.Median).Abs() > near {
				t.Errorf("%v, planned %v", got, want)
			}
		})
	}
}

// died is how long nobody leads after the leader's process has died.
func (c Choice) died(t *testing.T, seed uint64) (took time.Duration) {
	m := &machine{dead: make(map[string]bool), told: make(map[string][]func())}
	join := func(t *testing.T, x *trial, store *memory.Decider) {
		x.join(t, 0, store, &line{machine: m})
		x.elected <- <-x.elected // it leads before the other comes
		x.join(t, 1, store, &line{machine: m})
	}
	c.try(t, seed, 0, join, func(x *trial, leader *actor) {
		time.Sleep(c.Term + time.Duration(x.rand.Float64()*float64(12*c.Term)))
		begin := time.Now()
		leader.fault.Store(&memory.Fault{Hang: x.gone, Err: errors.New("gone")})
		leader.line.die()
		<-x.elected
		took = time.Since(begin)
	})
	return took
}
