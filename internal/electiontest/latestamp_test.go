//go:build go1.25

package electiontest

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// stampsReads is a store that stamps what it returns and what it pushes, and not the answer to
// a write, as NATS does.
type stampsReads struct{ *memory.Decider }

func (s stampsReads) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	return unstamped{s.Decider}.WriteEntry(ctx, e)
}

// stampsPushes is a store that stamps only what it pushes.
type stampsPushes struct{ stampsReads }

func (s stampsPushes) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	return unstamped{s.Decider}.ReadCurrent(ctx)
}

// A stamp that is told only after the answer, or just before it, counts as the answer's would:
// nobody goes on leading by a clock that it proves wrong, and what was taken too early is kept
// until the view of the one who led is over.
func TestClockSkewKeepsByAStampToldLater(t *testing.T) {
	slowly := memory.Fault{AnswerDelay: 100 * time.Millisecond}
	reads := func(d *memory.Decider) le.RaceDecider { return stampsReads{d} }
	pushes := func(d *memory.Decider) le.RaceDecider { return stampsPushes{stampsReads{d}} }
	for name, of := range map[string]struct {
		store func(*memory.Decider) le.RaceDecider
		fault memory.Fault
	}{"after the answer": {store: reads}, "before it": {reads, slowly}, "by the feed alone": {store: pushes}, "by the feed alone, before the answer": {pushes, slowly}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d := memory.NewDecider()
				_, b, view := robbed(t, d, func(c *config) {
					c.Decider.(*memory.Decider).Inject(memory.Always(of.fault).On(memory.Write))
					c.Decider = of.store(c.Decider.(*memory.Decider))
				})
				c := join(t, d, "c", polled, func(c *config) { c.PollInterval = time.Second })
				neverBoth(t, T+S-200*time.Millisecond, view, b, c)
				if e := d.Entry(); e.LeaderID != "b" || e.ElectionNumber != first+1 {
					t.Fatalf("the record is %+v, want it kept by b", e)
				}
				b.note(func() {
					for _, r := range b.leaderships {
						if led := r.done.Sub(r.from); r.done.IsZero() || led > 0 || !errors.Is(r.cause, le.ErrClockSkew) {
							t.Errorf("b led for %v, until %v", led, r.cause)
						}
					}
				})
				sleep(3 * time.Second)
				c.leads(t)
			})
		})
	}
}

// polledStamps is stampsReads without the feed.
func polledStamps(c *config) {
	c.Decider = struct{ le.RaceDecider }{stampsReads{c.Decider.(*memory.Decider)}}
}

// pushedStamps is stampsReads with its feed.
func pushedStamps(c *config) { c.Decider = stampsReads{c.Decider.(*memory.Decider)} }

// A write whose answer has no stamp, though reads have some, is read back before anybody
// leads by it: a clock that is wrong begins no leadership, and no job.
func TestClockSkewReadsBackBeforeItLeads(t *testing.T) {
	for name, store := range map[string]func(*config){"pushed": pushedStamps, "polled": polledStamps} {
		t.Run(name+", an election that nobody has led", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				b := join(t, memory.NewDecider(), "b", store, ahead())
				if sleep(10 * T); b.count() > 0 {
					t.Errorf("b had %d leaderships by a clock that is an hour ahead", b.count())
				}
			})
		})
		t.Run(name+", held by another", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d := memory.NewDecider()
				a := join(t, d, "a", store)
				sleep(8 * time.Second)
				b := join(t, d, "b", store, ahead())
				neverBoth(t, 10*T, a.leadership(t, 0).view, b)
				if a.leads(t); b.count() > 0 {
					t.Errorf("b had %d leaderships by a clock that is an hour ahead", b.count())
				}
			})
		})
	}
}

// Once begins no job by a clock that a read would prove wrong, and leaves no hold behind.
func TestOnceReadsBackBeforeItsJob(t *testing.T) {
	for name, store := range map[string]func(*config){"pushed": pushedStamps, "polled": polledStamps} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d := memory.NewDecider()
				cfg := config{Config: le.Config{Decider: d.Handle(), LeaderID: "b", TermLength: T, MaxClockSkew: S, Clock: clocks.NewOffset(nil, time.Hour)}}
				store(&cfg)
				err := cfg.Once(t.Context(), le.OnceOptions{Hold: 12 * time.Hour}, func(context.Context, *le.TimeView) error {
					t.Error("the job was begun by a clock that is an hour ahead")
					return nil
				})
				if !errors.Is(err, le.ErrClockSkew) {
					t.Errorf("Once: %v", err)
				}
				if e := d.Entry(); !e.Vacant() || e.Hold > 0 {
					t.Errorf("the record is %+v, want it free", e)
				}
			})
		})
	}
}

// A leader that nothing is pushed to compares its clock once a term, by a read of what it has
// written.
func TestClockSkewReadsBackOnceATerm(t *testing.T) {
	for _, off := range []time.Duration{5 * time.Second, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				clock := clocks.NewOffset(nil, 0)
				a := join(t, memory.NewDecider(), "a", on(clock), polledStamps)
				sleep(time.Second)
				began := time.Now()
				sleep(20 * T)
				if n := len(a.opsSince(began, le.OpRead)); n < 20 || n > 22 {
					t.Errorf("%d reads in 20 terms, want one in each", n)
				}
				clock.Set(off)
				sleep(T + S)
				a.follows(t)
				if cause := context.Cause(a.leadership(t, 0).ctx); !errors.Is(cause, le.ErrClockSkew) {
					t.Errorf("its leadership ended with %v", cause)
				}
			})
		})
	}
}

// A leader reads nothing if its answers or pushes have stamps, nor if no read has any.
func TestClockSkewReadsBackForAReason(t *testing.T) {
	for name, store := range map[string]func(*config){
		"stamped answers": polled,
		"stamped pushes":  pushedStamps,
		"no stamps":       func(c *config) { c.Decider = unstamped{c.Decider.(*memory.Decider).Polled()} },
		"nothing checked": func(c *config) { polledStamps(c); c.ClockPolicy, c.MaxClockSkew = le.SharedClock, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				a := join(t, memory.NewDecider(), "a", store)
				sleep(time.Second)
				began := time.Now()
				sleep(20 * T)
				if n := len(a.opsSince(began, le.OpRead)); n > 0 {
					t.Errorf("%d reads by a leader", n)
				}
				a.leads(t)
			})
		})
	}
}

// A read that asks for the time does not keep an extension waiting: if reads hang, the leader
// leads on.
func TestClockSkewReadsBackBesideExtensions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		a := join(t, memory.NewDecider(), "a", polledStamps)
		sleep(time.Second)
		never := make(chan struct{})
		defer close(never)
		a.store.Inject(memory.Hang(never).On(memory.Read))
		sleep(20 * T)
		if a.leads(t); a.count() != 1 {
			t.Errorf("%d leaderships", a.count())
		}
	})
}

// lagging is stampsReads without the feed, whose replica shows old until a time.
type lagging struct {
	le.RaceDecider
	until time.Time
	old   *le.RaceEntry
}

func (l *lagging) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	if time.Now().Before(l.until) {
		return l.old.Clone(), nil
	}
	return l.RaceDecider.ReadCurrent(ctx)
}

// WriteEntry does not say who has the record instead.
func (l *lagging) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	token, err := l.RaceDecider.WriteEntry(ctx, e)
	if errors.Is(err, le.ErrLostRace) {
		err = le.ErrLostRace
	}
	return token, err
}

// What was won begins when a read shows it, be the first ones stale. If no read is answered, it
// begins not at all; a candidate that is told to stop meanwhile releases it.
func TestClockSkewReadBackIsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			d := c.Decider.(*memory.Decider)
			c.Decider = &lagging{stampsReads{d}, time.Now().Add(2 * time.Second), d.Entry()}
		})
		sleep(time.Second)
		if a.follows(t); d.Entry().LeaderID != "a" {
			t.Fatalf("the record is %+v, want it taken", d.Entry())
		}
		sleep(3 * time.Second)
		if a.leads(t); a.leadership(t, 0).number != d.Entry().ElectionNumber {
			t.Errorf("leads with number %d, and the record is %+v", a.leadership(t, 0).number, d.Entry())
		}
		e := memory.NewDecider()
		b := join(t, e, "b", polledStamps, func(c *config) {
			var reads atomic.Int64
			cut := memory.Fail(errors.New("cut off")).On(memory.Read)
			c.Decider.(struct{ le.RaceDecider }).RaceDecider.(stampsReads).Inject(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Read && reads.Add(1) == 1 {
					return memory.Fault{}
				}
				return cut(op)
			})
		})
		sleep(3 * time.Second)
		if b.follows(t); e.Entry().LeaderID != "b" {
			t.Fatalf("the record is %+v, want it taken", e.Entry())
		}
		b.store.Inject(nil)
		b.quit()
		if !e.Entry().Vacant() {
			t.Errorf("the record is %+v, want it released", e.Entry())
		}
	})
}

// mutelyPushed is stampsReads whose feed does not tell the time.
type mutelyPushed struct{ stampsReads }

func (m mutelyPushed) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) {
		for e, err := range m.stampsReads.Changes(ctx) {
			if e != nil {
				e.Token = unstampedToken{e.Token}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// What a feed has told of before the answer is read back like anything else, and not taken again.
func TestClockSkewReadsBackWhatAFeedToldFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		a := join(t, memory.NewDecider(), "a", func(c *config) {
			d := c.Decider.(*memory.Decider)
			d.Inject(memory.Always(memory.Fault{AnswerDelay: 100 * time.Millisecond}).On(memory.Write))
			c.Decider = mutelyPushed{stampsReads{d}}
		})
		sleep(time.Second)
		if a.leads(t); len(a.opsSince(time.Time{}, le.OpAcquire)) != 1 {
			t.Errorf("%d acquisitions, want one", len(a.opsSince(time.Time{}, le.OpAcquire)))
		}
	})
}

// tellsLate is stampsReads whose feed tells of what a test says, when the test says so.
type tellsLate struct {
	stampsReads
	told chan *le.RaceEntry
}

func (l tellsLate) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) {
		for {
			select {
			case e := <-l.told:
				if !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
		}
	}
}

// The stamp of an older write, which a feed tells late, shows nothing of the clock since. So an
// acquisition that was under way then is read back like any other.
func TestClockSkewReadsBackThoughAnOlderStampIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		told := make(chan *le.RaceEntry)
		b := join(t, d, "b", on(clock), func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Always(memory.Fault{AnswerDelay: 100 * time.Millisecond}).On(memory.Write))
			c.Decider = tellsLate{stampsReads{c.Decider.(*memory.Decider)}, told}
		})
		sleep(T)
		b.leads(t)
		older, err := d.Handle().ReadCurrent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told <- older.Clone()
		go func() { _ = b.Resign(t.Context()) }()
		sleep(time.Second)
		clock.Set(time.Hour)
		for d.Entry().Vacant() {
			sleep(time.Millisecond)
		}
		sleep(50 * time.Millisecond)
		told <- older // while the answer to the acquisition is under way
		sleep(time.Second)
		if b.count() != 1 || !d.Entry().Vacant() {
			t.Errorf("b had %d leaderships, the last by a clock that is an hour ahead; the record is %+v", b.count(), d.Entry())
		}
	})
}
