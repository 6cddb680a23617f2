//go:build go1.25

package electiontest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Lifelines, rule 3: an acquisition from the dead is early on purpose. If it shows that the clock is
// wrong, the candidate gives it up at once, and does not keep it for a leader that may live. It keeps
// what was taken from the living.
func TestLifeline03EarlyOnPurpose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d, k := memory.NewDecider(), newKernel()
		of := k.process()
		a := join(t, d, "a", lifelined(of))
		sleep(time.Minute)
		of.kill(a)
		b := join(t, d, "b", lifelined(k.process()), ahead())
		sleep(S)
		if e := d.Entry(); !e.Vacant() || e.ElectionNumber != first+1 || b.count() > 0 {
			t.Errorf("the record is %+v, want it acquired by b and released", e)
		}
	})
}

func TestLifeline03KeptForTheLiving(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d, k := memory.NewDecider(), newKernel()
		_, b, view := robbed(t, d, lifelined(k.process()))
		c := join(t, d, "c", polled, lifelined(k.process()), func(c *config) { c.PollInterval = time.Second })
		neverBoth(t, T+S-100*time.Millisecond, view, b, c)
		if e := d.Entry(); e.LeaderID != "b" || b.count()+c.count() > 0 {
			t.Fatalf("the record is %+v, want it kept by b, who does not lead", e)
		}
	})
}

// Lifelines, rule 3: what the dead one took too early, from a leader that lives, is not taken from it
// at once, nor released for it, by whatever clock.
func TestLifeline03TakenTooEarlyByTheDead(t *testing.T) {
	sick := func(c *config) { c.Healthy = func(context.Context) error { return errSick } }
	for name, heir := range map[string][]func(*config){
		"taken": {}, "released": {sick}, "taken by a clock ahead": {ahead()}, "released by a clock ahead": {ahead(), sick},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d, k := memory.NewDecider(), newKernel()
				of := k.process()
				_, b, view := robbed(t, d, lifelined(of))
				c := join(t, d, "c", append(heir, lifelined(k.process()))...)
				elsewhere := join(t, d, "d")
				sleep(time.Second)
				of.kill(b)
				neverBoth(t, T, view, c, elsewhere)
				sleep(2*T + 2*S)
				if !c.View().ValueInFuture() && !elsewhere.View().ValueInFuture() {
					t.Error("nobody leads")
				}
			})
		})
	}
}

// The term that was taken is over when the store's clock shows what the dead process's clock showed at
// its acquisition: here, ten seconds later.
func TestLifeline03TakenTooEarlyBySeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d, k := memory.NewDecider(), newKernel()
		of := k.process()
		const off = 10 * time.Second
		_, b, view := robbed(t, d, on(clocks.NewOffset(nil, off)), lifelined(of))
		for d.Entry().LeaderID != "b" {
			sleep(10 * time.Millisecond)
		}
		took := time.Now()
		c := join(t, d, "c", lifelined(k.process()))
		sleep(time.Second)
		of.kill(b)
		neverBoth(t, off-time.Second, view, c)
		sleep(100 * time.Millisecond)
		c.leads(t)
		near(t, "the end of the term that was taken", time.Since(took), off, 200*time.Millisecond)
	})
}

// Without stamps, a candidate whose clock doubts itself keeps what it took. If it dies, its heir's clock
// says when the term is over that was taken.
func TestLifeline03TakenTooEarlyWithoutStamps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d, k := memory.NewDecider(), newKernel()
		of, bound := k.process(), &boundedClock{}
		_, b, view := robbed(t, d, lifelined(of), on(boundedOffset{clocks.NewOffset(nil, time.Hour), bound}), func(c *config) {
			c.Decider.(*memory.Decider).Inject(func(memory.Op) memory.Fault { return memory.Fault{AnswerDelay: 2 * time.Second} })
			c.Decider = unstamped{c.Decider}
		})
		for d.Entry().LeaderID != "b" {
			sleep(10 * time.Millisecond)
		}
		bound.bound.Store(int64(clocks.Unbounded))
		c := join(t, d, "c", mutePolled, lifelined(k.process()))
		sleep(3 * time.Second)
		of.kill(b)
		neverBoth(t, T, view, b, c)
		sleep(2*T + 2*S)
		c.leads(t)
	})
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
		a.store.Inject(func(memory.Op) memory.Fault { return memory.Fault{Err: memory.ErrLost} })
		sleep(time.Until(until))
		b.follows(t)
		sleep(2 * T)
		b.leads(t)
	})
}

// Lifelines, rule 5: who is not to lead releases for the dead, without a Successor, and with
// what is left of the Hold.
func TestLifeline05ReleasesForTheDead(t *testing.T) {
	for _, hold := range []time.Duration{0, 2 * time.Minute} {
		for name, style := range lifelineStyles {
			t.Run(name+" "+hold.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					d, k := memory.NewDecider(), newKernel()
					of := k.process()
					a := join(t, d, "a", style, lifelined(of), func(c *config) { c.Hold = hold })
					sleep(time.Second)
					begun := a.leadership(t, 0).from
					sick := func(c *config) { c.Healthy = func(context.Context) error { return errors.New("sick") } }
					b := join(t, d, "b", style, sick, lifelined(k.process()))
					far := join(t, d, "far", func(c *config) { style(c); c.PollInterval = time.Second })
					sleep(70 * time.Second)
					a.leads(t)
					// Asked by an operator, it dies before it has released.
					a.store.Inject(func(op memory.Op) (f memory.Fault) {
						if op.Kind == memory.Write {
							f.Err = memory.ErrLost
						}
						return f
					})
					if hold == 0 {
						if err := le.Transfer(t.Context(), d, "nobody"); err != nil {
							t.Fatal(err)
						}
					}
					was := d.Entry()
					of.kill(a)
					died := time.Now()
					sleep(20 * time.Millisecond)
					for range 100 { // Healthy is asked before
						if d.Entry().Vacant() {
							break
						}
						sleep(100 * time.Millisecond)
					}
					e := d.Entry()
					if e.Vacant() && e.Successor != "" {
						t.Errorf("reserved for %q", e.Successor)
					}
					if hold > 0 {
						if !e.Vacant() {
							t.Fatalf("not released for the dead: %+v", e)
						}
						left := e.TermExpiry.Add(e.Hold).Sub(begun)
						if left < hold || left > hold+T+2*S {
							t.Errorf("held for %v from the beginning, want %v", left, hold)
						}
						sleep(time.Until(begun.Add(hold)) - time.Millisecond)
						far.follows(t)
						sleep(2 * T)
						far.leads(t)
						return
					}
					sleep(3 * time.Second)
					far.leads(t)
					if took := far.leadership(t, 0).from.Sub(died); took > 12*time.Second {
						t.Errorf("took %v", took)
					}
					if n := far.View().ElectionNumber(); n != was.ElectionNumber+1 {
						t.Errorf("token %d after %d", n, was.ElectionNumber)
					}
					b.follows(t)
				})
			})
		}
	}
}

// The Hold of a dead leader is kept, whatever the time of its TermExpiry: no difference overflows.
func TestLifeline05HoldOfTheFuture(t *testing.T) {
	for _, year := range []int{2250, 2400, 9999} {
		t.Run(fmt.Sprint(year), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d, k := memory.NewDecider(), newKernel()
				of := k.process()
				if err := of.Live("x"); err != nil {
					t.Fatal(err)
				}
				of.die()
				d.Replace(&le.RaceEntry{LeaderID: "x", Incarnation: "x", ElectionNumber: 7, TermLength: T, TermExpiry: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), Hold: time.Hour})
				join(t, d, "b", lifelined(k.process()), func(c *config) { c.Healthy = func(context.Context) error { return errors.New("sick") } })
				sleep(3 * T)
				if e := d.Entry(); !e.Vacant() || e.Hold < time.Hour {
					t.Errorf("vacant %v, held for %v, want an hour at least", e.Vacant(), e.Hold)
				}
			})
		})
	}
}

// A candidate that cools down releases for the dead, and does not cool down longer because of it.
func TestLifeline05CoolsDownNoLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, a, b, of, k := pair(t)
		next := join(t, b.store, "c", lifelined(k.process()))
		_ = a.Resign(t.Context())
		sleep(time.Second)
		leads, other := b, next
		if !b.View().ValueInFuture() {
			leads, other = next, b
		}
		other.quit()
		leads.leads(t)
		resigned := time.Now()
		sleep(T - 4*time.Second)
		// The machine that is left is a's, which cools down for three seconds more.
		k.mu.Lock()
		k.files[leads.Leader().Incarnation] = &process{k: k}
		dies := k.files[leads.Leader().Incarnation]
		k.mu.Unlock()
		dies.kill(leads)
		sleep(time.Second)
		a.follows(t)
		sleep(4 * time.Second)
		a.leads(t)
		_, _ = resigned, of
	})
}

// A clock that is proved wrong does not tell how much of a Hold is left: who has it does nothing
// for the dead.
func TestLifeline05WrongClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d, k := memory.NewDecider(), newKernel()
		of := k.process()
		a := join(t, d, "a", lifelined(of), func(c *config) { c.Hold = 10 * time.Minute })
		sleep(time.Second)
		b := join(t, d, "b", lifelined(k.process()), on(clocks.NewOffset(nil, -time.Minute)))
		sleep(time.Minute)
		of.kill(a)
		sleep(time.Minute)
		if e := d.Entry(); e.LeaderID != "a" || len(b.opsSince(time.Time{}, le.OpRelease)) > 0 {
			t.Errorf("the record is %+v", e)
		}
	})
}

// A vacancy for the dead has the time of the clock that wrote it. If that is Unsynchronized, the
// vacancy says so, and those whose clocks agree wait for what is left of the Hold all the same.
func TestLifeline05UnsynchronizedClock(t *testing.T) {
	for _, off := range []time.Duration{-4 * time.Hour, 4 * time.Hour} {
		bubble(t, func(t *testing.T) {
			const hold = 10 * time.Minute
			d, k := memory.NewDecider(), newKernel()
			of := k.process()
			a := join(t, d, "a", lifelined(of), func(c *config) { c.Hold = hold })
			sleep(time.Second)
			begun := a.leadership(t, 0).from
			b := join(t, d, "b", lifelined(k.process()), on(clocks.NewOffset(nil, off)), func(c *config) {
				c.ClockPolicy = le.Unsynchronized
				c.Healthy = func(context.Context) error { return errors.New("sick") }
			})
			far := join(t, d, "far")
			sleep(time.Minute)
			of.kill(a)
			sleep(time.Minute)
			if e := d.Entry(); !e.Vacant() || !e.Unsynchronized || len(b.opsSince(time.Time{}, le.OpRelease)) == 0 {
				t.Errorf("the record is %+v, want it released, by an unsynchronized clock", e)
			}
			sleep(time.Until(begun.Add(hold)) - time.Millisecond)
			far.follows(t)
			sleep(2*T + hold/10)
			far.leads(t)
		})
	}
}

// Lifelines, rule 7: before each write of the lease it is looked whether this process's own death
// can be proved. If not, nothing of it is left that could prove it falsely.
func TestLifeline07LostDescriptor(t *testing.T) {
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

// Lifelines, rule 9: in calm the store is asked nothing more.
func TestLifeline09Calm(t *testing.T) {
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
		a := join(t, memory.NewDecider(), "a", lifelined(none))
		sleep(time.Second)
		a.leads(t)
	})
}

// cutOff keeps the leader that was robbed from learning of it.
func cutOff(m *member) { m.store.Inject(memory.Fail(errors.New("cut off"))) }

// An operator's request over what the dead took too early has a new stamp: the wait by the store's clock does
// not begin before that stamp.
func TestLifeline03TakenTooEarlyAndARequest(t *testing.T) {
	for name, heir := range map[string][]func(*config){
		"taken": nil, "released": {func(c *config) { c.Healthy = func(context.Context) error { return errSick } }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d, k := memory.NewDecider(), newKernel()
				of := k.process()
				a, b, view := robbed(t, d, on(clocks.NewOffset(nil, 16*time.Second)), lifelined(of))
				cutOff(a)
				for d.Entry().LeaderID != "b" {
					sleep(10 * time.Millisecond)
				}
				c := join(t, d, "c", append(heir, lifelined(k.process()))...)
				elsewhere := join(t, d, "d")
				sleep(time.Second)
				of.kill(b)
				neverBoth(t, 8*time.Second, view, c, elsewhere)
				if err := le.StepDown(t.Context(), d.Handle(), false); err != nil {
					t.Fatal(err)
				}
				neverBoth(t, T, view, c, elsewhere)
			})
		})
	}
}

// Reads by a replica that lags, without that request, do not put the end of the wait off.
func TestLifeline03TakenTooEarlyAndALaggingReplica(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d, k := memory.NewDecider(), newKernel()
		of := k.process()
		a, b, _ := robbed(t, d, on(clocks.NewOffset(nil, 16*time.Second)), lifelined(of))
		cutOff(a)
		for d.Entry().LeaderID != "b" {
			sleep(10 * time.Millisecond)
		}
		old := d.Entry()
		sleep(time.Second)
		of.kill(b)
		if err := le.StepDown(t.Context(), d.Handle(), false); err != nil {
			t.Fatal(err)
		}
		c := join(t, d, "c", polled, lifelined(k.process()), func(c *config) {
			c.PollInterval = time.Second
			c.Decider = &replica{RaceDecider: c.Decider, stale: old.Clone}
		})
		sleep(T + 2*S + 3*time.Second)
		c.leads(t)
	})
}

// The heir's clock is further ahead than that of the dead: the store's stamp decides, not the heir's clock.
func TestLifeline03TakenTooEarlyHeirAhead(t *testing.T) {
	for name, heir := range map[string][]func(*config){
		"taken": {ahead()}, "released": {ahead(), func(c *config) { c.Healthy = func(context.Context) error { return errSick } }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d, k := memory.NewDecider(), newKernel()
				of := k.process()
				a, b, view := robbed(t, d, on(clocks.NewOffset(nil, 16*time.Second)), lifelined(of))
				cutOff(a)
				for d.Entry().LeaderID != "b" {
					sleep(10 * time.Millisecond)
				}
				elsewhere := join(t, d, "d")
				sleep(time.Second)
				of.kill(b)
				c := join(t, d, "c", append(heir, lifelined(k.process()))...)
				neverBoth(t, T, view, c, elsewhere)
			})
		})
	}
}

// A dead process took the record too early and marked it Unsynchronized, since its kernel contradicted the store.
// The stamp still shows that it came too early.
func TestLifeline03TakenTooEarlyAndMarked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d, k := memory.NewDecider(), newKernel()
		of := k.process()
		clock := boundedOffset{clocks.NewOffset(nil, 3*time.Second), &boundedClock{}}
		clock.bound.bound.Store(int64(time.Millisecond))
		b := join(t, d, "b", on(clock), lifelined(of), polled)
		sleep(time.Second)
		b.leads(t)
		a := join(t, d, "a")
		sleep(time.Second)
		_ = b.Resign(t.Context())
		sleep(T + 8*time.Second) // b's cooldown is over
		a.leads(t)
		view := a.View()
		cutOff(a)
		clock.Set(time.Hour) // and the kernel does not know
		for d.Entry().LeaderID != "b" {
			sleep(10 * time.Millisecond)
			if !view.ValueInFuture() {
				t.Skip("b did not take it")
			}
		}
		t.Logf("marked: %v, %v of a's view left", d.Entry().Unsynchronized, time.Until(view.Get()))
		of.kill(b)
		c := join(t, d, "c", lifelined(k.process()))
		neverBoth(t, T, view, b, c)
	})
}

// A feed tells of an extension that is undone, an operator's request lands over the state before, and the
// leader dies: the undertaker releases the record.
func TestLifeline05ReleasesBesideARumour(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d, k := memory.NewDecider(), newKernel()
		of := k.process()
		a := join(t, d, "a", lifelined(of), polled)
		sleep(time.Second)
		c := join(t, d, "c", lifelined(k.process()), func(c *config) { c.Healthy = func(context.Context) error { return errSick } })
		sleep(time.Second)
		// the feed tells of a's extension, which is undone; a dies; the request lands.
		told := d.Entry()
		told.Extension++
		told.TermExpiry, told.WriteID = told.TermExpiry.Add(time.Second), "undone"
		d.Tell(told)
		sleep(time.Second)
		d.Tell(nil)
		if err := le.StepDown(t.Context(), d.Handle(), false); err != nil {
			t.Fatal(err)
		}
		of.kill(a)
		sleep(2 * time.Second)
		if e := d.Entry(); !e.Vacant() {
			t.Errorf("2 s after the death: %+v, want it released by %s", e, c.id)
		}
	})
}

// A campaign with a hold is never marked, even if the dead left a term that is disproved: else later jobs would
// never be due.
func TestLifeline03HoldIsNeverMarked(t *testing.T) {
	for name, policy := range map[string]func(*config){
		"warn only": stayOn,
		"shared":    func(c *config) { c.ClockPolicy, c.MaxClockSkew = le.SharedClock, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d, k := memory.NewDecider(), newKernel()
				of := k.process()
				clock := clocks.NewOffset(nil, 2*time.Hour)
				const hold = 5 * time.Second
				a := join(t, d, "a", policy, on(clock), lifelined(of), func(c *config) { c.Hold = hold })
				sleep(time.Minute) // the job takes longer than its hold
				a.leads(t)
				of.kill(a)
				clock.Set(0)
				cfg := config{Config: le.Config{Decider: d.Handle(), TermLength: T, MaxClockSkew: S, Clock: clock}}
				policy(&cfg)
				run := func(id string) error {
					c := cfg.Config
					c.LeaderID, c.Lifeline = id, k.process()
					return c.Once(t.Context(), le.OnceOptions{Hold: hold}, func(context.Context, *le.TimeView) error { return nil })
				}
				sleep(time.Second)
				if err := run("b"); err != nil {
					t.Fatal(err)
				}
				if e := d.Entry(); e.Unsynchronized {
					t.Errorf("the record with a hold is marked: %+v", e)
				}
				for range 10 {
					sleep(time.Hour)
					if err := run("c"); err != nil {
						t.Errorf("an hour later, after a hold of %v: %v", hold, err)
					}
				}
			})
		})
	}
}
