//go:build go1.25

package shard

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// shown is a store that is read only.
type shown struct {
	entry *leaderelection.RaceEntry
	err   error
	reads int
}

func (s *shown) ReadCurrent(context.Context) (*leaderelection.RaceEntry, error) {
	if s.reads++; s.err != nil {
		return nil, s.err
	}
	return s.entry.Clone(), nil
}

func (*shown) WriteEntry(context.Context, *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return nil, leaderelection.ErrLostRace
}

// watching is a watcher whose loop does not run, and what it posts.
func watching(t *testing.T, change func(*Config)) (*watcher, *shown, func() seatEvent) {
	d := newDesk(t, 1)
	d.cfg.TermLength, d.cfg.MaxClockSkew = T, S
	change(&d.cfg)
	c := bench(t, d, nil)
	c.events = make(chan seatEvent, 100)
	store := &shown{}
	return &watcher{c: c, seat: 0, decider: store}, store, func() (last seatEvent) {
		for len(c.events) > 0 {
			last = <-c.events
		}
		return last
	}
}

// held is a seat's record whose term ends then.
func held(number leaderelection.ElectionNumber, extension uint64, expiry time.Duration) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{LeaderID: "b#1", Incarnation: "b", ElectionNumber: number, Extension: extension, TermLength: T, TermExpiry: time.Now().Add(expiry)}
}

// A term that is not compared with clocks seems over when the record has stayed as it is for
// that long, and for the skew.
func TestLapsesUnsynchronized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, store, posted := watching(t, func(c *Config) { c.ClockPolicy = leaderelection.Unsynchronized })
		lapsed := func(after time.Duration) bool {
			time.Sleep(after)
			w.look()
			return posted().lapsed
		}
		store.entry = held(1, 0, -time.Hour) // its clock says nothing
		if lapsed(0) || lapsed(T+S) || !lapsed(1) {
			t.Error("it does not seem over after a term and the skew, but before, or not at all")
		}
		store.entry = held(1, 1, -time.Hour)
		if lapsed(0) || lapsed(T) || w.due() != T {
			t.Error("it was extended, and seems over")
		}
		if !lapsed(2 * S) {
			t.Error("it does not seem over after its last extension")
		}
		store.entry = &leaderelection.RaceEntry{ElectionNumber: 1, Extension: 2}
		if lapsed(0) || lapsed(2*T) {
			t.Error("nobody has it, and a term seems over")
		}
	})
}

// A term that ends later than right clocks can have written is not waited for: it seems over when the
// record has stayed as it is, as if no clocks were compared.
func TestLapsesThoughItsExpiryLiesAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, store, posted := watching(t, func(*Config) {})
		lapsed := func(after time.Duration) bool {
			time.Sleep(after)
			w.look()
			return posted().lapsed
		}
		store.entry = held(1, 0, time.Hour)
		if lapsed(0) || lapsed(T+S) || !lapsed(1) || w.due() != T {
			t.Error("it does not seem over after a term and the skew, but before, or not at all")
		}
		store.entry = held(1, 1, T+2*S)
		if lapsed(0) || lapsed(T+S+1) {
			t.Error("its leader's clock may be right, and it seems over before its TermExpiry")
		}
	})
}

// A held seat is read when its term would be over, and the skew: by the extensions that are
// told too, which are not read. A vacant one is left to Watch.
func TestSeatsAreReadWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, store, posted := watching(t, func(*Config) {})
		due := func(what string, want time.Duration) {
			t.Helper()
			if got := w.due(); got != want {
				t.Errorf("%s: due after %v, want %v", what, got, want)
			}
		}
		store.err = errors.New("no")
		for n, want := range []int{1, 2, 3, 4, 4} {
			w.look()
			due("cannot be read", time.Duration(want)*T/8)
			if e := posted(); e.err == nil {
				t.Errorf("read %d: it is not told that it failed", n)
			}
		}
		store.entry, store.err = held(1, 1, 10*time.Second), nil
		w.look()
		due("held", 10*time.Second+S+time.Millisecond)
		reads := store.reads
		w.told(held(1, 2, 14*time.Second))
		due("extended", 14*time.Second+S+time.Millisecond)
		w.told(held(1, 1, 9*time.Second))
		due("told of an older one", 14*time.Second+S+time.Millisecond)
		if e := posted(); store.reads != reads || !e.told {
			t.Errorf("an extension was read; posted is %+v", e)
		}
		w.told(held(2, 0, T)) // of another session: what is read has not got there
		due("the read lags", T/8)
		w.look()
		due("the read lags", T/4)
		store.entry = held(2, 0, 12*time.Second)
		w.look()
		due("read", 12*time.Second+S+time.Millisecond)
		store.entry = &leaderelection.RaceEntry{ElectionNumber: 2, Extension: 5}
		w.told(store.entry)
		due("vacant", math.MaxInt64)
		store.err = errors.New("no")
		w.look()
		due("cannot be read any more", T/8)
	})
}

// A seat's record that refuses for good at first is followed when it does not any more.
func TestSeatsRecordRefuses(t *testing.T) {
	play(t, func(g *group) {
		refuses := g.joinRefused("a", seatName(1))
		g.settles(12, time.Minute)
		refuses.Store(false)
		time.Sleep(2 * T)
		g.join("b")
		g.settles(12, T)
	})
}
