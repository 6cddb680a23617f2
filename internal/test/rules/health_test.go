//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

var errSick = errors.New("sick")

// Rule 16: when Healthy is asked, and what counts as its answer.
func TestRule16Healthy(t *testing.T) {
	scenes{
		"before each acquisition and extension, and every PollInterval while it is sick": func(t *testing.T) {
			d := memory.NewDecider()
			var asked atomic.Int64
			var answer atomic.Pointer[error]
			var delay atomic.Int64
			sick := errors.New("sick")
			a := join(t, d, "a", func(c *config) {
				c.PollInterval = 3 * time.Second
				c.Healthy = func(ctx context.Context) error {
					asked.Add(1)
					time.Sleep(time.Duration(delay.Load())) // ignores ctx
					if err := answer.Load(); err != nil {
						return *err
					}
					return nil
				}
			})
			sleep(20 * time.Second)
			a.leads(t)
			if asked.Load() != 3 {
				t.Fatalf("asked %d times, want once for the campaign and twice for extensions", asked.Load())
			}
			delay.Store(int64(5 * time.Second)) // longer than T/4
			sleep(time.Second + T/4 + time.Millisecond)
			a.follows(t)
			if !errors.Is(a.leadership(t, 0).cause, le.ErrUnhealthy) || !d.Entry().Vacant() {
				t.Fatalf("cause %v, record %+v after a late answer", a.leadership(t, 0).cause, d.Entry())
			}
			sleep(time.Minute)
			a.follows(t)
			if a.count() != 1 {
				t.Fatalf("%d leaderships: a late answer counted as healthy", a.count())
			}
			delay.Store(0)
			answer.Store(&sick)
			sleep(10 * time.Second)
			n := asked.Load()
			sleep(30 * time.Second)
			if got := asked.Load() - n; got != 10 {
				t.Fatalf("asked %d times in 30 s while sick, want every PollInterval", got)
			}
			answer.Store(nil)
			sleep(3 * time.Second)
			a.leads(t)
		},
		"one answer is for one write, however soon the next is": func(t *testing.T) {
			var asked atomic.Int32
			a := join(t, memory.NewDecider(), "a", func(c *config) {
				c.ExtendEvery = T / 20
				c.Healthy = func(context.Context) error { asked.Add(1); return nil }
			})
			sleep(2 * T)
			if writes := len(a.opsSince(time.Time{}, le.OpAcquire, le.OpExtend)); writes < 30 || int(asked.Load()) < writes {
				t.Errorf("asked %d times for %d writes", asked.Load(), writes)
			}
		},
		"one from before a write is not good for the next": func(t *testing.T) {
			begin := time.Now()
			var asked []time.Time
			a := join(t, memory.NewDecider(), "a", func(c *config) {
				c.PollInterval = time.Second
				c.Healthy = func(context.Context) error {
					asked = append(asked, time.Now())
					switch passed := time.Since(begin); {
					case passed >= 7*time.Second && passed < 7500*time.Millisecond:
						return errors.New("sick")
					case passed >= 8*time.Second && passed < 9*time.Second:
						time.Sleep(2 * time.Second)
					}
					return nil
				}
				elected := c.OnElected
				c.OnElected = func(ctx context.Context, v *le.TimeView) {
					elected(ctx, v)
					time.Sleep(2 * time.Second) // released while Healthy is being asked
				}
			})
			sleep(2 * T)
			a.quit()
			var last time.Time // when the last write began
			for _, op := range a.opsSince(begin, le.OpAcquire, le.OpExtend, le.OpRelease) {
				if op.Kind == le.OpAcquire {
					fresh := false
					for _, at := range asked {
						fresh = fresh || !at.Before(last) && !at.After(op.Start)
					}
					if !fresh {
						t.Errorf("claimed at %v by an answer from before the write at %v", op.Start.Sub(begin), last.Sub(begin))
					}
				}
				last = op.Start
			}
			if a.count() < 2 {
				t.Fatalf("led %d times", a.count())
			}
		},
		"one that is late is told so by its ctx, and asked again": func(t *testing.T) {
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
		},
		"one that ends its goroutine has not said that all is well": func(t *testing.T) {
			a := join(t, memory.NewDecider(), "a", func(c *config) {
				c.Healthy = func(context.Context) error { runtime.Goexit(); return nil }
			})
			sleep(3 * T)
			if a.follows(t); a.count() > 0 {
				t.Error("it has led")
			}
		},
		"not of who stops": func(t *testing.T) {
			var asked atomic.Int32
			var sick atomic.Bool
			_, a := leader(t, func(c *config) {
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
		},
		"one that hangs is not called a second time": func(t *testing.T) {
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
		},
		"a view that has run out has, though Healthy is late as well": func(t *testing.T) {
			release := make(chan struct{})
			var hang atomic.Bool
			clock := &leaping{Clock: clocks.System()}
			_, a := leader(t, stayOn, func(c *config) {
				c.Clock = clock
				c.Healthy = func(context.Context) error {
					if hang.Load() {
						<-release
					}
					return nil
				}
			})
			hang.Store(true)
			sleep(6*time.Second + time.Second/2) // it is asked for the extension at 7 s
			clock.by.Store(int64(time.Minute))
			sleep(2 * time.Second)
			hang.Store(false)
			close(release)
			synctest.Wait()
			if r := a.leadership(t, 0); !errors.Is(r.cause, le.ErrExpired) {
				t.Errorf("it ended by %v", r.cause)
			}
		},
	}.run(t)
}

// Rule 16: once it is sick, a leader without callbacks extends no more, and its view ends at once.
func TestRule16SickWithoutCallbacks(t *testing.T) {
	for _, how := range []string{"error", "hangs"} {
		scene(t, how, func(t *testing.T) {
			var sick atomic.Bool
			asked, over := make(chan struct{}), make(chan struct{})
			_, a := leader(t, func(c *config) {
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
	}
}

// Ping says whether only a new process helps.
func TestPing(t *testing.T) {
	scenes{
		"not while the loop moves, whatever store and callbacks do": func(t *testing.T) {
			store := memory.NewDecider()
			clock := &looking{Clock: clocks.System()}
			writes := 0
			release := make(chan struct{})
			c, cancel := start(t, le.Config{
				Decider: store, LeaderID: "a", Clock: clock, TermLength: T, MaxClockSkew: S,
				OnElected: func(context.Context, *le.TimeView) { <-release }, // heeds nothing
				Trace:     &le.Trace{StoreOp: func(le.StoreOp) { writes++ }},
			})
			ping := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return c.Ping(ctx)
			}
			for range 100 {
				must(t, ping())
				time.Sleep(T / 100)
			}
			synctest.Wait()
			if writes > 4 { // a read, the acquisition, and an extension or two
				t.Errorf("%d store operations in a term", writes)
			}
			store.Inject(memory.LoseRequests())
			for range 4 {
				time.Sleep(T)
				if err := ping(); err != nil {
					t.Errorf("while the store does not answer: %v", err)
				}
			}
			stuck := make(chan struct{})
			wait := func() { <-stuck }
			clock.f.Store(&wait)
			if err := ping(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a loop that is stuck: %v", err)
			}
			clock.f.Store(nil)
			close(stuck)
			if err := ping(); err != nil {
				t.Errorf("one that was: %v", err)
			}
			close(release)
			cancel()
			<-c.Done()
			ctx, over := context.WithCancel(t.Context())
			over()
			for range 20 {
				if err := errors.Join(ping(), c.Ping(ctx), c.Resign(ctx)); err != nil {
					t.Errorf("one that has stopped: %v", err)
				}
			}
		},
		"calls that hang, of which none is made more": func(t *testing.T) {
			var l lines
			a := join(t, memory.NewDecider(), "a", logged(&l))
			sleep(T)
			release := make(chan struct{})
			a.store.Inject(memory.Hang(release))
			sleep(4 * T)
			if err := a.Ping(t.Context()); err != nil {
				t.Errorf("too soon: %v", err)
			}
			sleep(time.Hour)
			if err := a.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "no call to the store has returned") {
				t.Errorf("Ping returns %v", err)
			}
			if n := l.count("none is made before one returns"); n < 58 || n > 62 {
				t.Errorf("it was said %d times in an hour", n)
			}
			a.store.Inject(nil)
			close(release)
			sleep(2 * T)
			must(t, a.Ping(t.Context()))
			a.leads(t)
		},
		"not of a LeaderChanged that is always busy": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(1))
			a := join(t, d, "a", func(c *config) {
				c.LeaderChanged = func(context.Context, le.RaceEntry) { time.Sleep(T / 2) }
			})
			for i := range 30 {
				d.Replace(rival(le.ElectionNumber(i + 2)))
				sleep(T / 3)
				if err := a.Ping(t.Context()); err != nil {
					t.Fatalf("after %d records: %v", i, err)
				}
			}
		},
		"a LeaderChanged that is stuck, and a store that refuses for good": func(t *testing.T) {
			news := make(chan struct{})
			a := join(t, memory.NewDecider(), "a", func(c *config) { c.LeaderChanged = func(context.Context, le.RaceEntry) { <-news } })
			sleep(4*T - time.Second)
			must(t, a.Ping(t.Context()))
			sleep(2 * time.Second)
			if err := a.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "LeaderChanged") {
				t.Errorf("Ping returned %v", err)
			}
			close(news)
			sleep(time.Second)
			must(t, a.Ping(t.Context()))

			refused := fmt.Errorf("no such authority: %w", le.ErrPermanent)
			a.store.Inject(func(op memory.Op) (f memory.Fault) {
				if op.Kind != memory.Feed {
					f.Err = refused
				}
				return f
			})
			sleep(3 * T)
			must(t, a.Ping(t.Context()))
			sleep(3 * T)
			if err := a.Ping(t.Context()); !errors.Is(err, le.ErrPermanent) {
				t.Errorf("Ping returned %v", err)
			}
			a.store.Inject(nil)
			sleep(T)
			must(t, a.Ping(t.Context()))
		},
	}.run(t)
}

// startled is a store whose tokens panic once, when armed: user code that runs in a campaign's loop.
type startled struct {
	le.RaceDecider
	armed atomic.Bool
	ends  bool // its goroutine, in place of a panic
}

type startledToken struct {
	le.LeaderToken
	of *startled
}

func (t startledToken) CommitTS() time.Time {
	if t.of.armed.CompareAndSwap(true, false) {
		if t.of.ends {
			runtime.Goexit()
		}
		panic("CommitTS")
	}
	return time.Time{}
}

func (d *startled) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	e, err := d.RaceDecider.ReadCurrent(ctx)
	if err == nil {
		e.Token = startledToken{e.Token, d}
	}
	return e, err
}

func (d *startled) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	e = e.Clone()
	e.Token = e.Token.(startledToken).LeaderToken
	token, err := d.RaceDecider.WriteEntry(ctx, e)
	return startledToken{token, d}, err
}

// A campaign whose loop was ended under it, as by t.FailNow in a LeaderToken, says so to all who wait.
func TestLoopThatIsEndedIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &startled{RaceDecider: memory.NewDecider().Polled(), ends: true}
		d.armed.Store(true)
		c, _ := start(t, le.Config{Decider: d, LeaderID: "a", TermLength: T, MaxClockSkew: S})
		if l, err := c.Lead(t.Context()); l != nil || err == nil {
			t.Errorf("Lead returns %v, %v", l, err)
		}
		if c.Wait() == nil {
			t.Error("Wait says nothing")
		}
	})
}

// Acquire runs in its caller's goroutine, who may recover from a panic of user code that the loop calls.
// Nobody extends the lease then, so the leadership is over.
func TestPanicInTheLoopEndsTheLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &startled{RaceDecider: memory.NewDecider().Polled()}
		var view *le.TimeView
		ended := make(chan error, 1)
		recovered := make(chan any, 1)
		go func() {
			defer func() { recovered <- recover() }()
			_ = le.Config{Decider: d, LeaderID: "a", TermLength: T, MaxClockSkew: S, OnElected: func(ctx context.Context, v *le.TimeView) {
				view = v
				d.armed.Store(true)
				<-ctx.Done()
				ended <- context.Cause(ctx)
			}}.Acquire(t.Context())
		}()
		if <-recovered == nil {
			t.Error("it has not panicked")
		}
		synctest.Wait()
		select {
		case cause := <-ended:
			if cause == nil || view.ValueInFuture() {
				t.Errorf("it ended by %v, and its view is until %v", cause, view.Get())
			}
		default:
			t.Error("nobody extends the lease, and the leader's ctx goes on")
		}
	})
}

// leaping is a clock of which both times leap, as those of a process that has had no CPU.
type leaping struct {
	clocks.Clock
	by atomic.Int64
}

func (c *leaping) Now() time.Time { return c.Clock.Now().Add(time.Duration(c.by.Load())) }

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
