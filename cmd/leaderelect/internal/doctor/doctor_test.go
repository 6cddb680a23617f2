package doctor_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// broken is a store that breaks its contract in some way.
type broken struct {
	leaderelection.RaceDecider
	write func(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error)
	read  func(ctx context.Context) (*leaderelection.RaceEntry, error)
}

func (b *broken) WriteEntry(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	if b.write != nil {
		return b.write(ctx, e)
	}
	return b.RaceDecider.WriteEntry(ctx, e)
}

func (b *broken) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	if b.read != nil {
		return b.read(ctx)
	}
	return b.RaceDecider.ReadCurrent(ctx)
}

// early is a token of a store whose clock is off.
type early struct {
	leaderelection.LeaderToken
	by time.Duration
}

func (e early) CommitTS() time.Time { return e.LeaderToken.CommitTS().Add(e.by) }

// shifted writes to d, whose clock seems to be off.
func shifted(d leaderelection.RaceDecider, by time.Duration) func(context.Context, *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return func(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
		e = e.Clone()
		if wrapped, ok := e.Token.(early); ok {
			e.Token = wrapped.LeaderToken
		}
		token, err := d.WriteEntry(ctx, e)
		if err != nil {
			return nil, err
		}
		return early{token, by}, nil
	}
}

// Each fault is found, by the check that is there for it, and a good store has none.
func TestFindings(t *testing.T) {
	for name, c := range map[string]struct {
		breaks func(*memory.Decider) leaderelection.RaceDecider
		check  string
		want   doctor.Verdict
	}{
		"good, with a feed": {func(d *memory.Decider) leaderelection.RaceDecider { return d }, "the feed of changes", doctor.OK},
		"good, without":     {func(d *memory.Decider) leaderelection.RaceDecider { return d.Polled() }, "the clock, against the store's", doctor.OK},
		"accepts a stale write": {func(d *memory.Decider) leaderelection.RaceDecider {
			return &broken{RaceDecider: d.Polled(), write: func(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
				if e.Token != nil {
					e = e.Clone()
					e.Token = d.Entry().Token
				}
				return d.WriteEntry(ctx, e)
			}}
		}, "a write over a newer record is refused", doctor.Fail},
		"creates twice": {func(d *memory.Decider) leaderelection.RaceDecider {
			return &broken{RaceDecider: d.Polled(), write: func(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
				if e.Token == nil {
					e = e.Clone()
					e.Token = d.Entry().Token
				}
				return d.WriteEntry(ctx, e)
			}}
		}, "creating a record that exists is refused", doctor.Fail},
		"says no, and does it": {func(d *memory.Decider) leaderelection.RaceDecider {
			return &broken{RaceDecider: d.Polled(), write: func(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
				token, err := d.WriteEntry(ctx, e)
				if errors.Is(err, leaderelection.ErrLostRace) {
					d.Replace(e)
				}
				return token, err
			}}
		}, "a write over a newer record is refused", doctor.Fail},
		"compares and then writes": {func(d *memory.Decider) leaderelection.RaceDecider {
			var mu sync.Mutex
			return &broken{RaceDecider: d.Polled(), write: func(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
				mu.Lock()
				same := e.Token == d.Entry().Token
				mu.Unlock()
				if !same {
					return nil, leaderelection.ErrLostRace
				}
				time.Sleep(5 * time.Millisecond) // the gap
				mu.Lock()
				defer mu.Unlock()
				d.Replace(e)
				return d.Entry().Token, nil
			}}
		}, "of many writes at once one wins", doctor.Fail},
		"may not write": {func(d *memory.Decider) leaderelection.RaceDecider {
			d.Inject(memory.Fail(leaderelection.ErrPermanent).On(memory.Write))
			return d
		}, "writing a scratch record", doctor.Fail},
		"stale reads": {func(d *memory.Decider) leaderelection.RaceDecider {
			var old *leaderelection.RaceEntry
			return &broken{RaceDecider: d.Polled(), read: func(ctx context.Context) (*leaderelection.RaceEntry, error) {
				if old == nil {
					old = d.Entry()
				}
				return old, nil
			}}
		}, "writing a scratch record", doctor.Warn},
		"another election's record, which is vacant": {func(d *memory.Decider) leaderelection.RaceDecider {
			d.Replace(&leaderelection.RaceEntry{ElectionNumber: 7, TermLength: time.Minute, Incarnation: "x"})
			return &broken{RaceDecider: d, write: func(context.Context, *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
				t.Error("it is written over")
				return nil, leaderelection.ErrPermanent
			}}
		}, "writing a scratch record", doctor.Fail},
		"slow": {func(d *memory.Decider) leaderelection.RaceDecider {
			d.Inject(memory.Slow(60 * time.Millisecond))
			return d.Polled()
		}, "latency of writes", doctor.Warn},
		"too slow": {func(d *memory.Decider) leaderelection.RaceDecider {
			d.Inject(memory.Slow(300 * time.Millisecond).On(memory.Write))
			return d.Polled()
		}, "latency of writes", doctor.Fail},
		"a clock that is off": {func(d *memory.Decider) leaderelection.RaceDecider {
			return &broken{RaceDecider: d.Polled(), write: shifted(d, -3*time.Second)}
		}, "the clock, against the store's", doctor.Fail},
		"a feed that fails": {func(d *memory.Decider) leaderelection.RaceDecider {
			d.Inject(memory.Fail(errors.New("no feed")).On(memory.Feed))
			return d
		}, "the feed of changes", doctor.Warn},
	} {
		virtual(t, name, func(t *testing.T) {
			found, well := run(t, doctor.Exam{Scratch: c.breaks(memory.NewDecider()), Term: time.Second, Skew: 100 * time.Millisecond, Bound: bound(time.Millisecond)})
			if got := of(found, c.check); len(got) == 0 || got[len(got)-1].Verdict != c.want {
				t.Errorf("%s: want %q; all: %+v", c.check, c.want, found)
			}
			failed := slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Verdict == doctor.Fail })
			if well == failed || (c.want == doctor.Fail) != failed {
				t.Errorf("well %v, failed %v, want %v: %+v", well, failed, c.want, found)
			}
		})
	}
}

// run examines a store, whose election's record nobody holds unless x has another. It wants advice for all that is not
// well.
func run(t *testing.T, x doctor.Exam) (found []doctor.Finding, well bool) {
	t.Helper()
	if x.Place == nil {
		x.Place = memory.NewDecider().Polled()
	}
	if x.Bound == nil {
		x.Bound = bound(0)
	}
	x.Tell = func(f doctor.Finding) {
		found = append(found, f)
		if f.Verdict != doctor.OK && f.Advice == "" {
			t.Errorf("no advice: %+v", f)
		}
	}
	return found, x.Run(t.Context())
}

// bound is what the kernel says of the clock's error.
func bound(d time.Duration) func() (time.Duration, error) {
	return func() (time.Duration, error) { return d, nil }
}

// of are the findings of one check.
func of(found []doctor.Finding, check string) []doctor.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f doctor.Finding) bool { return f.Check != check })
}

const storesClock = "the clock, against the store's"

// examined is a store that knows its settings.
type examined struct {
	leaderelection.RaceDecider
	warnings []durability.Warning
	err      error
}

func (e examined) Durability(context.Context) ([]durability.Warning, error) {
	return e.warnings, e.err
}

// What a store says of its settings is told, warning by warning, and also what it cannot
// say; neither is a failure.
func TestDurability(t *testing.T) {
	lossy := durability.Warning{Detail: "fsync is off", Advice: "switch it on"}
	refused := errors.New("CONFIG is refused")
	for name, c := range map[string]struct {
		place leaderelection.RaceDecider
		want  []doctor.Verdict
		says  string
	}{
		"well":                {examined{}, []doctor.Verdict{doctor.OK}, "no setting"},
		"two warnings":        {examined{warnings: []durability.Warning{lossy, lossy}}, []doctor.Verdict{doctor.Warn, doctor.Warn}, "fsync is off"},
		"refused":             {examined{err: refused}, []doctor.Verdict{doctor.Skip}, "CONFIG is refused"},
		"refused, and a word": {examined{warnings: []durability.Warning{lossy}, err: refused}, []doctor.Verdict{doctor.Warn, doctor.Skip}, "CONFIG is refused"},
		"not an examiner":     {nil, []doctor.Verdict{doctor.Skip}, "does not examine"},
	} {
		virtual(t, name, func(t *testing.T) {
			d := memory.NewDecider().Polled()
			place := d
			if e, ok := c.place.(examined); ok {
				e.RaceDecider = d
				place = e
			}
			all, well := run(t, doctor.Exam{Place: place, Scratch: memory.NewDecider().Polled(), Term: time.Minute, Skew: time.Second})
			if !well {
				t.Error("that is a failure")
			}
			var found []doctor.Verdict
			var last doctor.Finding
			for _, last = range of(all, "the store's durability") {
				found = append(found, last.Verdict)
			}
			if !slices.Equal(found, c.want) || !strings.Contains(last.Detail, c.says) || (last.Verdict == doctor.OK) != (last.Advice == "") {
				t.Errorf("%v, want %v; last %+v", found, c.want, last)
			}
		})
	}
}

// virtual runs a subtest in virtual time.
func virtual(t *testing.T, name string, f func(*testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// What the kernel says of the clock is held against --skew.
func TestKernelsAccount(t *testing.T) {
	const skew = 100 * time.Millisecond
	for name, c := range map[string]struct {
		off  time.Duration
		err  error
		want doctor.Verdict
	}{
		"close":           {skew / 2, nil, doctor.OK},
		"near the limit":  {skew, nil, doctor.Warn},
		"beyond it":       {skew + 1, nil, doctor.Fail},
		"nobody keeps it": {clocks.Unbounded, nil, doctor.Warn},
		"not to be had":   {0, errors.New("not on this system"), doctor.Skip},
	} {
		virtual(t, name, func(t *testing.T) {
			d := memory.NewDecider().Polled()
			found, well := run(t, doctor.Exam{Place: d, Scratch: d, Term: time.Second, Skew: skew, Bound: func() (time.Duration, error) { return c.off, c.err }})
			if last := found[len(found)-1]; well != (c.want != doctor.Fail) || last.Check != "the clock, by the kernel's account" || last.Verdict != c.want {
				t.Errorf("%v: %+v", well, last)
			} else if (last.Verdict == doctor.OK) != (last.Advice == "") {
				t.Errorf("advice: %+v", last)
			}
		})
	}
}

// A store's clock is said to be ahead, behind, or not to be told from this one.
func TestClockInWords(t *testing.T) {
	for by, want := range map[time.Duration]string{
		0:                     "agrees with this machine's: it is under 0.1ms behind at most, under 0.1ms ahead at most",
		3 * time.Second:       "is 3s to 3s ahead of this machine's",
		-3 * time.Millisecond: "is 3ms to 3ms behind this machine's",
	} {
		virtual(t, by.String(), func(t *testing.T) {
			time.Sleep(123456 * time.Microsecond) // a time in whole seconds is taken for a rounded one
			d := memory.NewDecider().Polled()
			all, _ := run(t, doctor.Exam{Place: d, Scratch: &broken{RaceDecider: d, write: shifted(d, by)}, Term: time.Minute, Skew: time.Second})
			if found := of(all, storesClock); len(found) != 1 || !strings.HasSuffix(found[0].Detail, want) {
				t.Errorf("%+v, want %q", found, want)
			}
		})
	}
}

// Two clocks that disagree: which of them is wrong, the kernel may know.
func TestWhoseClockIsWrong(t *testing.T) {
	for off, want := range map[time.Duration]string{50 * time.Millisecond: "the store's clock is wrong", 0: "is 3s to 3s ahead of this machine's", clocks.Unbounded: "is 3s to 3s ahead of this machine's"} {
		virtual(t, off.String(), func(t *testing.T) {
			time.Sleep(123456 * time.Microsecond)
			d := memory.NewDecider().Polled()
			all, _ := run(t, doctor.Exam{Place: d, Scratch: &broken{RaceDecider: d, write: shifted(d, 3*time.Second)}, Term: time.Minute, Skew: time.Second, Bound: bound(off)})
			found := of(all, storesClock)[0]
			if !strings.HasSuffix(found.Detail, want) || found.Verdict != doctor.Fail || !strings.Contains(found.Advice, "store's") && !strings.Contains(found.Advice, "of the store") {
				t.Errorf("%+v, want %q", found, want)
			}
		})
	}
}

// If all candidates share one clock, it is compared with nothing: a stamp that is cut to
// milliseconds, and is a little early for that, proves nothing.
func TestOneClockForAll(t *testing.T) {
	virtual(t, "", func(t *testing.T) {
		d := memory.NewDecider().Polled()
		found, well := run(t, doctor.Exam{Place: d, Scratch: &broken{RaceDecider: d, write: shifted(d, -time.Millisecond)}, Term: time.Minute, Clocks: leaderelection.SharedClock,
			Bound: bound(clocks.Unbounded)})
		if !well || slices.ContainsFunc(found, func(f doctor.Finding) bool { return strings.Contains(f.Check, "clock") && f.Verdict != doctor.OK }) {
			t.Errorf("well: %v: %+v", well, found)
		}
	})
}

// Nothing is examined if the record cannot be read. A damaged one is no matter of permissions: the advice is what mends it.
func TestPlaceThatCannotBeRead(t *testing.T) {
	for err, advice := range map[error]string{leaderelection.ErrPermanent: "", &leaderelection.DamagedRecordError{Err: leaderelection.ErrPermanent}: "leaderelect reset"} {
		place := memory.NewDecider()
		place.Inject(memory.Fail(err))
		found, well := run(t, doctor.Exam{Place: place, Scratch: memory.NewDecider(), Term: time.Second})
		if well || len(found) != 1 || found[0].Verdict != doctor.Fail || !strings.Contains(found[0].Advice, advice) {
			t.Errorf("%v: %+v", err, found)
		}
	}
}

// Where no clocks are compared they are not examined; a record by other rules is
// warned of.
func TestUnsynchronized(t *testing.T) {
	d := memory.NewDecider().Polled()
	if _, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, TermLength: time.Minute, Unsynchronized: true, Incarnation: "x"}); err != nil {
		t.Fatal(err)
	}
	for policy, given := range map[leaderelection.ClockPolicy]bool{leaderelection.Unsynchronized: true, leaderelection.Synchronized: false} {
		virtual(t, policy.String(), func(t *testing.T) {
			all, well := run(t, doctor.Exam{Place: d, Scratch: memory.NewDecider().Polled(), Term: time.Minute, Skew: time.Second, Clocks: policy, Bound: bound(time.Hour)})
			if well != given {
				t.Errorf("well %v: %+v", well, all)
			}
			found := make(map[string]doctor.Finding)
			for _, f := range all {
				found[f.Check] = f
			}
			if got := found["reading the record"].Detail; !strings.Contains(got, "held by a, token 1") {
				t.Error(got)
			}
			if f, told := found["the term"]; told == given || told && !strings.Contains(f.Detail, "with --clocks unsynchronized") {
				t.Errorf("%+v", f)
			}
			if f := found[storesClock]; given != strings.Contains(f.Detail, "of no importance") {
				t.Errorf("%+v", f)
			}
		})
	}
}
