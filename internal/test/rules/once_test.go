//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

// machine is one whose cron fires.
type machine struct {
	id      string
	clock   clocks.Clock
	crashes time.Duration // so long after it has fired; negative: it does not
}

// fire calls Once as a process of its own would, and reports whether it began the job,
// and what Once returned.
func (m machine) fire(t *testing.T, d *memory.Decider, hold, job time.Duration) (ran bool, err error) {
	return m.once(t, d, le.OnceOptions{Hold: hold}, func(ctx context.Context) error {
		select {
		case <-time.After(job):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// once is fire with any options, and any job.
func (m machine) once(t *testing.T, d *memory.Decider, o le.OnceOptions, job func(context.Context) error) (ran bool, err error) {
	store := d.Handle()
	store.Inject(memory.Slow(20 * time.Millisecond))
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if m.crashes >= 0 {
		crash := time.AfterFunc(m.crashes, func() {
			store.Inject(memory.LoseRequests()) // nothing that it does reaches anybody
			cancel(errCrash)
		})
		defer crash.Stop()
	}
	err = le.Config{Decider: store, LeaderID: m.id, TermLength: T, MaxClockSkew: S, Clock: m.clock}.Once(ctx, o,
		func(ctx context.Context, _ *le.TimeView) error {
			ran = true
			return job(ctx)
		})
	return ran, err
}

var errCrash = errors.New("the machine is dead")

// Of three machines whose clocks are within S, one runs the job in each of a thousand
// periods, also when they fire late, and die at any moment. It is never run twice, and
// not at all only if the one that was elected died before it had begun.
func TestOnceInAThousandPeriods(t *testing.T) {
	const period, hold = time.Minute, 40 * time.Second
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		rng := rand.New(rand.NewPCG(1, 2))
		var crashed, late, none int
		start := time.Now().Truncate(period).Add(period)
		for n := range 1000 {
			var mu sync.Mutex
			var ran, died []string
			var wg sync.WaitGroup
			for i := range 3 {
				skew := time.Duration(rng.Int64N(int64(2*S))) - S
				m := machine{id: fmt.Sprint("m", i), clock: clocks.NewOffset(clocks.System(), skew), crashes: -1}
				fires := start.Add(time.Duration(n)*period - skew) // by its own clock
				if rng.IntN(3) == 0 {
					fires = fires.Add(time.Duration(rng.Int64N(int64(18 * time.Second))))
					late++
				}
				switch rng.IntN(4) {
				case 0:
					m.crashes = time.Duration(rng.Int64N(int64(100 * time.Millisecond)))
				case 1:
					m.crashes = time.Duration(rng.Int64N(int64(15 * time.Second)))
				}
				job := time.Duration(rng.Int64N(int64(20 * time.Second)))
				wg.Go(func() {
					time.Sleep(time.Until(fires))
					began, err := m.fire(t, d, hold, job)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case began:
						ran = append(ran, m.id)
					case !errors.Is(err, le.ErrNotElected) && !errors.Is(err, errCrash):
						t.Errorf("period %d: %s: %v", n, m.id, err)
					}
					if errors.Is(err, errCrash) {
						died = append(died, m.id)
					}
				})
			}
			wg.Wait()
			crashed += len(died)
			e := d.Entry()
			switch {
			case len(ran) > 1:
				t.Fatalf("period %d: the job was run by %v", n, ran)
			case len(ran) == 0 && len(died) == 3: // nobody was there
			case len(ran) == 0:
				if none++; !strings.Contains(fmt.Sprint(died), e.LeaderID) || e.Vacant() {
					t.Fatalf("period %d: nobody ran the job; dead are %v, and the record is %+v", n, died, e)
				}
			}
		}
		if crashed < 300 || late < 500 || none == 0 || none > 100 {
			t.Errorf("%d crashes, %d late, in %d periods nobody: this shows too little", crashed, late, none)
		}
	})
}

// What Once leaves on record, and when it returns.
func TestOnce(t *testing.T) {
	scenes{
		"it returns when the job has, and the hold keeps all others away": func(t *testing.T) {
			d := memory.NewDecider()
			began := time.Now()
			ran, err := machine{id: "a", crashes: -1}.fire(t, d, time.Minute, time.Second)
			if !ran || err != nil {
				t.Fatal(ran, err)
			}
			near(t, "the job", time.Since(began), time.Second, 200*time.Millisecond)
			e := d.Entry()
			if over := e.TermExpiry.Add(e.Hold).Sub(began); !e.Vacant() || over < time.Minute || over > time.Minute+100*time.Millisecond {
				t.Fatalf("%+v is on record, held for %v", e, over)
			}
			for _, at := range []time.Duration{2 * time.Second, 30 * time.Second, time.Minute + S - 100*time.Millisecond} {
				sleep(at - time.Since(began))
				tried := time.Now()
				ran, err := machine{id: "b", crashes: -1}.fire(t, d, time.Minute, time.Second)
				var facts *le.NotElectedError
				if ran || !errors.As(err, &facts) || !facts.Leader.Vacant() || facts.Leader.Hold == 0 || !strings.Contains(err.Error(), "nobody leads until") {
					t.Errorf("after %v: ran %v, %v", at, ran, err)
				}
				near(t, "the refusal", time.Since(tried), 20*time.Millisecond, 130*time.Millisecond)
			}
			sleep(time.Minute + S + 100*time.Millisecond - time.Since(began))
			if ran, err := (machine{id: "b", crashes: -1}).fire(t, d, time.Minute, time.Second); !ran || err != nil {
				t.Errorf("when the hold was over: ran %v, %v", ran, err)
			}
		},
		"nothing for a job that was not begun": func(t *testing.T) {
			d := memory.NewDecider()
			d.Inject(memory.Slow(2 * time.Second).On(memory.Write))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // while the acquisition is out
			defer cancel()
			err := le.Config{Decider: d, LeaderID: "a", TermLength: T, MaxClockSkew: S}.Once(ctx, le.OnceOptions{Hold: time.Minute},
				func(context.Context, *le.TimeView) error { t.Error("the job was run"); return nil })
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if e := d.Entry(); !e.Vacant() || e.ElectionNumber != first || e.Hold != 0 {
				t.Errorf("on record is %+v", e)
			}
		},
		"with a Wait it takes over, or gives up when that is over": func(t *testing.T) {
			d, a := leader(t)
			cfg := le.Config{Decider: d, LeaderID: "b", TermLength: T, MaxClockSkew: S}
			ran := 0
			job := func(context.Context, *le.TimeView) error { ran++; return nil }
			began := time.Now()
			var facts *le.NotElectedError
			if err := cfg.Once(t.Context(), le.OnceOptions{Hold: 2 * time.Hour, Wait: time.Minute}, job); !errors.As(err, &facts) || facts.Leader.LeaderID != "a" || facts.Leader.Token != nil {
				t.Fatal(err)
			}
			near(t, "giving up", time.Since(began), time.Minute, 200*time.Millisecond)
			time.AfterFunc(time.Minute, a.stop)
			if err := cfg.Once(t.Context(), le.OnceOptions{Hold: 2 * time.Hour, Wait: time.Hour}, job); err != nil || ran != 1 {
				t.Fatal(err, ran)
			}
			near(t, "waiting", time.Since(began), 2*time.Minute, 500*time.Millisecond)
			d.Inject(memory.LoseRequests())
			if err := cfg.Once(t.Context(), le.OnceOptions{Hold: 2 * time.Hour, Wait: time.Minute}, job); !errors.Is(err, memory.ErrLost) || errors.Is(err, le.ErrNotElected) {
				t.Errorf("a store that fails: %v", err)
			}
			synctest.Wait()
		},
		"who waits returns when the job has run, if its Hold outlasts the Wait": func(t *testing.T) {
			d := memory.NewDecider()
			began := time.Now()
			go func() { _, _ = machine{id: "a", crashes: -1}.fire(t, d, time.Hour, 10*time.Minute) }()
			sleep(time.Second)
			job := func(context.Context) error { return nil }
			ran, err := machine{id: "b", crashes: -1}.once(t, d, le.OnceOptions{Hold: time.Hour, Wait: 50 * time.Minute}, job)
			if ran || !errors.Is(err, le.ErrNotElected) {
				t.Error(ran, err)
			}
			near(t, "the wait", time.Since(began), 10*time.Minute, T)
			sleep(time.Until(began.Add(55 * time.Minute)))
			if ran, err := (machine{id: "b", crashes: -1}).once(t, d, le.OnceOptions{Hold: time.Hour, Wait: 10 * time.Minute}, job); !ran || err != nil {
				t.Error(ran, err)
			}
			near(t, "the next run", time.Since(began), time.Hour+S, T)
		},
		"a machine that was suspended in its Wait does not run the job of the dead after their Hold": func(t *testing.T) {
			d := memory.NewDecider()
			const hold = 30 * time.Minute
			if ran, err := (machine{id: "a", crashes: time.Second}).fire(t, d, hold, time.Minute); !ran || !errors.Is(err, errCrash) {
				t.Fatal(ran, err)
			}
			clock := &stalling{Offset: clocks.NewOffset(nil, 0)}
			again, done := false, make(chan error, 1)
			go func() {
				done <- le.Config{Decider: d.Handle(), LeaderID: "b", TermLength: T, MaxClockSkew: S, Clock: clock}.Once(t.Context(), le.OnceOptions{Hold: hold, Wait: time.Minute},
					func(context.Context, *le.TimeView) error { again = true; return nil })
			}()
			sleep(10 * time.Second)
			clock.suspend()
			sleep(40 * time.Minute)
			clock.resume()
			if err := <-done; again || !errors.Is(err, le.ErrNotElected) {
				t.Errorf("b ran the job again: %t, or says %v", again, err)
			}
		},
		"a store that has not answered is no other leader": func(t *testing.T) {
			d := memory.NewDecider()
			hang := make(chan struct{})
			defer close(hang)
			d.Inject(memory.Hang(hang))
			began := time.Now()
			err := le.Config{Decider: d, LeaderID: "b", TermLength: T, MaxClockSkew: S}.Once(t.Context(), le.OnceOptions{Hold: time.Minute, Wait: time.Second},
				func(context.Context, *le.TimeView) error { return nil })
			if err == nil || errors.Is(err, le.ErrNotElected) || !strings.Contains(err.Error(), "has not answered within 1s") || time.Since(began) > 2*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		},
		"when its Wait is over, Healthy is asked no more": func(t *testing.T) {
			begin, release, over := time.Now(), make(chan struct{}), make(chan error, 1)
			go func() {
				over <- le.Config{Decider: memory.NewDecider(), LeaderID: "b", TermLength: T, MaxClockSkew: S, Healthy: func(context.Context) error {
					if time.Since(begin) >= 4*T {
						<-release
					}
					return errSick
				}}.Once(t.Context(), le.OnceOptions{Hold: 20 * time.Hour, Wait: 4 * T}, func(context.Context, *le.TimeView) error { return nil })
			}()
			sleep(4*T + time.Second)
			select {
			case err := <-over:
				if !errors.Is(err, le.ErrUnhealthy) {
					t.Error(err)
				}
			default:
				t.Error("a second after its Wait it has not returned")
			}
			close(release)
			synctest.Wait()
		},
		"without clocks to compare it waits on": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(&le.RaceEntry{ElectionNumber: 7, TermLength: T, TermExpiry: time.Now().Add(24 * time.Hour), Hold: 5 * time.Second, Unsynchronized: true, Incarnation: "i"})
			led := false
			c, err := le.Config{Decider: d, LeaderID: "a", ClockPolicy: le.Unsynchronized, OnElected: func(context.Context, *le.TimeView) { led = true }}.StartOnce(t.Context(), le.OnceOptions{Wait: time.Minute})
			must(t, err)
			l, err := c.Lead(t.Context())
			must(t, err)
			l.Release()
			sleep(time.Second)
			if err := c.Resign(t.Context()); err != nil || !led || !errors.Is(c.Wait(), le.ErrResigned) {
				t.Errorf("led: %v, %v, and it ends with %v", led, err, c.Wait())
			}
		},
	}.run(t)
}

// A job that finds that it cannot begin is left to others: at once, whatever the Hold, also if
// an extension has told of it, and if its machine was told to stop meanwhile.
func TestOnceLeavesToOthersWhatItHasNotBegun(t *testing.T) {
	for name, c := range map[string]struct {
		after, stop time.Duration
	}{"at once": {0, -1}, "after extensions": {20 * time.Second, -1}, "told to stop": {2 * time.Second, time.Second}} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.stop >= 0 {
				time.AfterFunc(c.stop, func() { cancel(errCrash) })
			}
			broken := errors.New("no interpreter")
			err := le.Config{Decider: d, LeaderID: "a", TermLength: T, MaxClockSkew: S}.Once(ctx, le.OnceOptions{Hold: 12 * time.Hour},
				func(context.Context, *le.TimeView) error {
					sleep(c.after)
					if e := d.Entry(); e.Hold == 0 {
						t.Errorf("not held while the job may begin: %+v", e)
					}
					return fmt.Errorf("%w: %w", le.ErrNotBegun, broken)
				})
			if !errors.Is(err, le.ErrNotBegun) || !errors.Is(err, broken) {
				t.Error(err)
			}
			if e := d.Entry(); !e.Vacant() || e.Hold != 0 {
				t.Fatalf("on record is %+v", e)
			}
			if ran, err := (machine{id: "b", crashes: -1}).fire(t, d, 12*time.Hour, time.Second); !ran || err != nil {
				t.Errorf("the next one: ran %v, %v", ran, err)
			}
		})
	}
}

// A job of HoldOnSuccess that has not returned nil is the next one's: at once if it was released, and after
// the term if its machine has died. One that has returned nil is nobody's before the Hold is over.
func TestOnceHoldsOnSuccess(t *testing.T) {
	const hold = 12 * time.Hour
	broken := errors.New("no disk")
	ends := func(err error) func(context.Context) error {
		return func(ctx context.Context) error { sleep(20 * time.Second); return err }
	}
	for name, c := range map[string]struct {
		crashes time.Duration
		job     func(ctx context.Context) error
		err     error
		next    time.Duration // when the next one runs the job, from the beginning of the first
	}{
		"succeeds":         {-1, ends(nil), nil, hold + S},
		"fails":            {-1, ends(broken), broken, 20 * time.Second},
		"cannot begin":     {-1, ends(le.ErrNotBegun), le.ErrNotBegun, 20 * time.Second},
		"ends too late":    {20 * time.Second, func(context.Context) error { sleep(time.Minute); return nil }, errCrash, time.Minute},
		"dies in its term": {5 * time.Second, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, errCrash, T + S},
		"dies later":       {20 * time.Second, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, errCrash, 20*time.Second + T},
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			began := time.Now()
			ran, err := machine{id: "a", crashes: c.crashes}.once(t, d, le.OnceOptions{Hold: hold, HoldOnSuccess: true}, func(ctx context.Context) error {
				err := c.job(ctx)
				if e := d.Entry(); e.Hold != 0 {
					t.Errorf("on hold while the job may have to be continued: %+v", e)
				}
				return err
			})
			if !ran || !errors.Is(err, c.err) {
				t.Fatal(ran, err)
			}
			for {
				took := time.Since(began)
				ran, err := machine{id: "b", crashes: -1}.once(t, d, le.OnceOptions{Hold: hold, HoldOnSuccess: true}, ends(nil))
				if ran && err == nil {
					near(t, "the next run", took, c.next, T)
					break
				}
				if ran || !errors.Is(err, le.ErrNotElected) || took > 13*time.Hour {
					t.Fatalf("after %v: ran %v, %v", took, ran, err)
				}
				sleep(max(time.Second, (c.next-took)/2))
			}
		})
	}
}

// A program that runs a job in its own way has the same: its hold begins with the release, unless it drops it.
// With a wait that has no limit it is elected however late, and leads once. With a wait it is told who leads instead.
func TestStartOnce(t *testing.T) {
	for name, fails := range map[string]bool{"succeeds": false, "fails": true} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			other := join(t, d, "b")
			sleep(time.Second)
			if _, err := (le.Config{Decider: d, LeaderID: "c"}).StartOnce(t.Context(), le.OnceOptions{Hold: time.Second}); !errors.Is(err, le.ErrConfig) {
				t.Errorf("a hold within the skew: %v", err)
			}
			late, err := le.Config{Decider: d, LeaderID: "c"}.StartOnce(t.Context(), le.OnceOptions{Wait: time.Minute})
			must(t, err)
			begin, why := time.Now(), (*le.NotElectedError)(nil)
			if err := late.Wait(); !errors.As(err, &why) || why.Leader.LeaderID != "b" || time.Since(begin) != time.Minute {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
			time.AfterFunc(time.Hour, other.quit)
			begun, led := make(chan *le.Campaign, 1), 0
			c, err := le.Config{Decider: d, LeaderID: "a", OnElected: func(ctx context.Context, _ *le.TimeView) {
				led++
				sleep(20 * time.Second)
				if e := d.Entry(); e.Hold != 0 {
					t.Errorf("on hold while the job may have to be continued: %+v", e)
				}
				if fails {
					c := <-begun
					c.DropHold()
					begun <- c
				}
				_ = (<-begun).Resign(ctx) // which ends it
			}}.StartOnce(t.Context(), le.OnceOptions{Hold: time.Hour, HoldOnSuccess: true, Wait: -1})
			must(t, err)
			begun <- c
			if err := c.Wait(); !errors.Is(err, le.ErrResigned) || led != 1 {
				t.Errorf("it has led %d times, and ends with %v", led, err)
			}
			if e := d.Entry(); !e.Vacant() || (e.Hold > 0) == fails {
				t.Errorf("the job %s, and leaves %+v", name, e)
			}
		})
	}
}

// Of three machines that wait, and that die at any moment, the last one finishes the job in each period, unless
// all are dead: nobody begins it after it was finished, and no two run it at once.
func TestOnceHoldsOnSuccessInManyPeriods(t *testing.T) {
	const period, hold, wait = time.Hour, 40 * time.Minute, 20 * time.Minute
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		rng := rand.New(rand.NewPCG(3, 4))
		start := time.Now().Truncate(period).Add(period)
		continued := 0
		for n := range 300 {
			var runs, finished, running atomic.Int32
			var wg sync.WaitGroup
			dead := 0
			for i := range 3 {
				skew := time.Duration(rng.Int64N(int64(2*S))) - S
				m := machine{id: fmt.Sprint("m", i), clock: clocks.NewOffset(clocks.System(), skew), crashes: -1}
				if rng.IntN(2) == 0 {
					dead++
					m.crashes = time.Duration(rng.Int64N(int64(time.Minute)))
				}
				late := time.Duration(rng.Int64N(int64(18 * time.Second)))
				takes := time.Duration(rng.Int64N(int64(time.Minute)))
				wg.Go(func() {
					sleep(time.Until(start.Add(time.Duration(n)*period - skew + late)))
					_, err := m.once(t, d, le.OnceOptions{Hold: hold, HoldOnSuccess: true, Wait: wait}, func(ctx context.Context) error {
						if runs.Add(1); running.Add(1) > 1 || finished.Load() > 0 {
							t.Errorf("period %d: %s begins, though %d run, and %d have finished", n, m.id, running.Load()-1, finished.Load())
						}
						defer running.Add(-1)
						select {
						case <-time.After(takes):
							finished.Add(1)
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					})
					if err != nil && !errors.Is(err, le.ErrNotElected) && !errors.Is(err, errCrash) {
						t.Errorf("period %d: %s: %v", n, m.id, err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(start.Add(time.Duration(n) * period)); took > wait/2 {
				t.Errorf("period %d: somebody waits for %v, though the job has run", n, took)
			}
			if dead < 3 && finished.Load() == 0 {
				t.Errorf("period %d: nobody has finished the job, though %d live", n, 3-dead)
			}
			if runs.Load() > 1 {
				continued++
			}
		}
		if continued < 30 {
			t.Errorf("the job was continued in %d periods: this shows too little", continued)
		}
	})
}

func TestOnceRefuses(t *testing.T) {
	bad := le.Config{Decider: memory.NewDecider(), LeaderID: "a", ClockPolicy: le.Unsynchronized, OnElected: func(context.Context, *le.TimeView) {}}
	err := bad.Once(t.Context(), le.OnceOptions{Wait: -1}, nil)
	for _, want := range []string{"Hold is 0", "Wait is -1ns", "Unsynchronized", "OnElected must be nil for Once", "job given to Once is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	// Who waits for longer than the record is held would run the job when the first has.
	good := le.Config{Decider: memory.NewDecider(), LeaderID: "a"}
	ran := 0
	job := func(context.Context, *le.TimeView) error { ran++; return nil }
	good.MaxClockSkew = S
	if err := good.Once(t.Context(), le.OnceOptions{Hold: time.Minute, Wait: time.Minute - S}, job); err == nil || !strings.Contains(err.Error(), "the Hold is 1m0s, must be longer than Wait and MaxClockSkew together (59s + 1s)") || ran > 0 {
		t.Error(err, ran)
	}
	if err := good.Once(t.Context(), le.OnceOptions{Hold: time.Minute, Wait: time.Minute - S - 1}, job); err != nil || ran != 1 {
		t.Error(err, ran)
	}
}

// While clocks are stepped within MaxClockSkew, a Hold of a little more than Wait and MaxClockSkew is
// enough.
func TestOnceWithClocksThatAreStepped(t *testing.T) {
	for _, hold := range []time.Duration{11*time.Second + time.Millisecond, 12 * time.Second, 12900 * time.Millisecond, 13100 * time.Millisecond} {
		scene(t, hold.String(), func(t *testing.T) {
			d := memory.NewDecider()
			start := time.Now().Add(10 * time.Second) // when the job is due, by each machine's wall clock
			ran := map[string]time.Time{}
			once := le.OnceOptions{Hold: hold, Wait: 10 * time.Second}
			run := func(id string, clock *clocks.Offset, f func()) error {
				clock.SleepUntil(t.Context(), start)
				return le.Config{Decider: d.Handle(), LeaderID: id, TermLength: T, MaxClockSkew: S, Clock: clock}.Once(t.Context(), once,
					func(context.Context, *le.TimeView) error { ran[id] = time.Now(); f(); return nil })
			}
			a, b := clocks.NewOffset(nil, S), clocks.NewOffset(nil, -S)
			done := make(chan error, 2)
			go func() { done <- run("a", a, func() { a.Set(-S) }) }()
			go func() { done <- run("b", b, func() {}) }()
			time.Sleep(10*time.Second + 2*S)
			b.Set(S)
			<-done
			<-done
			if len(ran) > 1 {
				t.Errorf("the job ran twice: %v apart (Hold %v, Wait %v, S %v)", ran["b"].Sub(ran["a"]), hold, once.Wait, S)
			}
		})
	}
}

// held is a vacancy that is on hold from now.
func held(hold time.Duration) *le.RaceEntry {
	return &le.RaceEntry{ElectionNumber: 1, Extension: 1, TermExpiry: time.Now(), TermLength: T, Incarnation: "x", Hold: hold}
}

// Nobody can hand over what is on hold. Whether that is over, no operator's clock decides:
// one that is ahead would have the job run twice.
func TestHoldIsNotHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(held(time.Minute))
		for _, wait := range []time.Duration{0, time.Hour} {
			sleep(wait)
			if err := le.Transfer(t.Context(), d, "b"); !errors.Is(err, le.ErrNoLeader) || !strings.Contains(err.Error(), "held for nobody") {
				t.Errorf("%v later: %v", wait, err)
			}
		}
		if e := d.Entry(); e.Successor != "" || e.Hold != time.Minute || e.Extension != 1 {
			t.Errorf("on record is %+v", e)
		}
	})
}

// What an operator asks for during a hold does not cut it, nor does the end of a clock's
// counting; when it is over, a term is left for the clocks.
func TestHoldIsNotHandedOverUntilATermAfterIt(t *testing.T) {
	for name, c := range map[string]struct {
		hold, term, after time.Duration
		unsynchronized    bool
	}{
		"just over":          {time.Minute, T, time.Minute + T/2, false},
		"by no common clock": {time.Minute, T, 1000 * time.Hour, true},
		"without an end":     {math.MaxInt64, T, time.Hour, false},
		"of an endless term": {time.Minute, math.MaxInt64, time.Second, false},
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			e := held(c.hold)
			e.TermLength, e.Unsynchronized = c.term, c.unsynchronized
			d.Replace(e)
			sleep(c.after)
			if err := le.Transfer(t.Context(), d, "b"); !errors.Is(err, le.ErrNoLeader) {
				t.Errorf("%v, on record is %+v", err, d.Entry())
			}
		})
	}
}

// Transfer and StepDown refuse while the leader has a Hold: the leader would go, and nobody could follow.
// StepDown with force ends its job all the same.
func TestTransferDuringAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, a := leader(t, func(c *config) { c.Hold = time.Hour })
		before := *d.Entry()
		for asked, err := range map[string]error{"Transfer": le.Transfer(t.Context(), d, "b"), "StepDown": le.StepDown(t.Context(), d, false)} {
			if !errors.Is(err, le.ErrRefused) || !strings.Contains(err.Error(), before.TermExpiry.Add(before.Hold).Format(time.RFC3339)) {
				t.Errorf("%s: %v, want it to say until when the record is held", asked, err)
			}
		}
		if e := d.Entry(); e.Successor != "" || e.Extension != before.Extension {
			t.Errorf("the record is %+v, want it untouched", e)
		}
		a.leads(t)
		must(t, le.StepDown(t.Context(), d, true))
		sleep(time.Second)
		a.follows(t)
	})
}

// try is TryAcquire by a candidate "b", and how long it took.
func try(t *testing.T, d le.RaceDecider, adjust ...func(*config)) (*le.Campaign, context.CancelFunc, time.Duration, error) {
	t.Helper()
	cfg := config{Config: le.Config{Decider: d, LeaderID: "b", TermLength: T, MaxClockSkew: S}}
	for _, f := range adjust {
		f(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // should it never return
	t.Cleanup(cancel)
	began := time.Now()
	c, err := cfg.TryAcquire(ctx)
	return c, cancel, time.Since(began), err
}

// TryAcquire leads if nobody does.
func TestTryAcquire(t *testing.T) {
	scenes{
		"until its ctx ends": func(t *testing.T) {
			d := memory.NewDecider()
			b, stop, _, err := try(t, d)
			if err != nil || b.Status() != le.Leading || !b.View().ValueInFuture() {
				t.Fatal(err)
			}
			sleep(3 * T)
			if !b.View().ValueInFuture() {
				t.Error("the lease was not extended")
			}
			stop()
			if err := b.Wait(); !errors.Is(err, context.Canceled) || !d.Entry().Vacant() {
				t.Errorf("%v, on record is %+v", err, d.Entry())
			}
		},
		"it awaits the answer to its claim, whatever wakes it": func(t *testing.T) {
			h := memory.NewDecider()
			h.Inject(memory.Slow(time.Second))
			b, stop, took, err := try(t, h, func(c *config) { c.Trace = &le.Trace{StoreOp: func(le.StoreOp) {}} }) // told of the read, the loop looks again
			if err != nil || b.Status() != le.Leading || took != 2*time.Second {
				t.Fatalf("%v after %v", err, took)
			}
			stop()
			_ = b.Wait() // it was cancelled
		},
		"it follows the record as any leader": func(t *testing.T) {
			d := memory.NewDecider()
			b, _, _, err := try(t, d)
			must(t, err)
			sleep(time.Second)
			must(t, le.StepDown(t.Context(), d, false))
			asked := time.Now()
			if err := b.Wait(); !errors.Is(err, le.ErrResigned) {
				t.Error(err)
			}
			near(t, "stepping down", time.Since(asked), 0, 100*time.Millisecond)
		},
		"whose ctx ends while the claim is out, it returns when that is released": func(t *testing.T) {
			d := memory.NewDecider()
			d.Inject(memory.Slow(2 * time.Second).On(memory.Write))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			b, err := le.Config{Decider: d, LeaderID: "b", TermLength: T, MaxClockSkew: S}.TryAcquire(ctx)
			if e := d.Entry(); b != nil || !errors.Is(err, context.DeadlineExceeded) || !e.Vacant() || e.ElectionNumber != first {
				t.Errorf("%v, on record is %+v", err, e)
			}
		},
	}.run(t)
}

// While another leads it says so at once, having read once, and nothing of it is left.
func TestTryAcquireWhileAnotherLeads(t *testing.T) {
	for name, reserved := range map[string]bool{"leads": false, "is to lead": true} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			e := rival(7)
			if reserved {
				e.LeaderID, e.Successor = "", "rival"
			}
			d.Replace(e)
			h := d.Handle()
			var calls []memory.Kind
			h.Inject(func(op memory.Op) memory.Fault { calls = append(calls, op.Kind); return memory.Fault{} })
			b, _, took, err := try(t, h)
			var facts *le.NotElectedError
			if b != nil || !errors.Is(err, le.ErrNotElected) || !errors.As(err, &facts) || facts.Leader.ElectionNumber != 7 {
				t.Errorf("%v, %v", b, err)
			}
			if len(calls) != 1 || calls[0] != memory.Read || took > 0 {
				t.Errorf("it took %v, %v", took, calls)
			}
			synctest.Wait() // a goroutine that was left would keep the bubble
		})
	}
}

// A lost answer to its claim is read back: who has won leads.
func TestTryAcquireReadsBack(t *testing.T) {
	for name, lost := range map[string]error{"lost": memory.ErrLost, "lost race": le.ErrLostRace} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			h := d.Handle()
			h.Inject(memory.Always(memory.Fault{Err: lost, Lands: true}).On(memory.Write).Times(1))
			if b, _, _, err := try(t, h); err != nil || !b.View().ValueInFuture() {
				t.Error(err)
			}
		})
	}
}

// A store that fails ends it with the store's error, after one call for each thing, and
// with nothing held.
func TestTryAcquireWhenTheStoreFails(t *testing.T) {
	for name, c := range map[string]struct {
		faults memory.Faults // nil: as hangs says
		hangs  memory.Kind
		want   error
		within time.Duration
	}{
		"reads":          {memory.Fail(memory.ErrLost).On(memory.Read), 0, memory.ErrLost, 0},
		"writes":         {memory.Fail(memory.ErrLost).On(memory.Write), 0, memory.ErrLost, time.Second},
		"all":            {memory.Fail(memory.ErrLost), 0, memory.ErrLost, 0},
		"reads hang":     {nil, memory.Read, context.DeadlineExceeded, T/4 + time.Second},
		"writes hang":    {nil, memory.Write, context.DeadlineExceeded, T},
		"lost for good":  {memory.LoseAnswers().On(memory.Write), 0, nil, time.Second},
		"a refused race": {memory.Fail(le.ErrLostRace).On(memory.Write), 0, le.ErrNotElected, time.Second},
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			h := d.Handle()
			hang := make(chan struct{})
			defer close(hang)
			if c.faults == nil {
				c.faults = memory.Hang(hang).On(c.hangs)
			}
			h.Inject(c.faults)
			b, stop, took, err := try(t, h)
			if !errors.Is(err, c.want) || took > c.within {
				t.Errorf("%v after %v, want %v within %v", err, took, c.want, c.within)
			}
			if b != nil {
				h.Inject(nil)
				stop()
				<-b.Done()
			}
			if e := d.Entry(); !e.Vacant() {
				t.Errorf("on record is %+v", e)
			}
		})
	}
}

// A candidate that may not lead says why, and has written nothing.
func TestTryAcquireWhenUnfit(t *testing.T) {
	sick := errors.New("sick")
	for name, c := range map[string]struct {
		adjust func(*config)
		want   error
	}{
		"sick":                     {func(c *config) { c.Healthy = func(context.Context) error { return sick } }, le.ErrUnhealthy},
		"clock":                    {func(c *config) { c.Clock = clocks.NewOffset(clocks.System(), 3*S) }, le.ErrClockSkew},
		"clock, as the read shows": {func(c *config) { c.Clock = clocks.NewOffset(clocks.System(), -3*S) }, le.ErrClockSkew},
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(&le.RaceEntry{ElectionNumber: 7, TermExpiry: time.Now(), TermLength: T, Incarnation: "x"})
			b, _, _, err := try(t, d, c.adjust)
			if b != nil || !errors.Is(err, c.want) || errors.Is(err, le.ErrNotElected) {
				t.Errorf("%v, %v, want %v", b, err, c.want)
			}
			if e := d.Entry(); !e.Vacant() {
				t.Errorf("on record is %+v", e)
			}
		})
	}
}

// It leads once: when that leadership has ended, the campaign has.
func TestTryAcquireLeadsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*testing.T, *memory.Decider, *le.Campaign)
		want error
	}{
		"ousted":   {func(_ *testing.T, d *memory.Decider, _ *le.Campaign) { d.Replace(rival(first + 1)) }, le.ErrOusted},
		"resigned": {func(t *testing.T, _ *memory.Decider, b *le.Campaign) { _ = b.Resign(t.Context()) }, le.ErrResigned},
		"expired":  {func(_ *testing.T, d *memory.Decider, _ *le.Campaign) { d.Inject(memory.LoseRequests()) }, le.ErrExpired},
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			b, _, _, err := try(t, d)
			must(t, err)
			c.end(t, d, b)
			if err := b.Wait(); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if n := d.Entry().ElectionNumber; n > first+1 {
				t.Errorf("it has led again: %d", n)
			}
		})
	}
}
