package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
)

// Who is not elected is told why not: also by whom that does not live any more.
func TestWhoHasTheElection(t *testing.T) {
	const skew = time.Second
	record := func(change func(*leaderelection.RaceEntry)) *leaderelection.RaceEntry {
		e := &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 7, TermLength: 15 * time.Second, TermExpiry: time.Now().Add(time.Minute)}
		change(e)
		return e
	}
	for want, e := range map[string]*leaderelection.RaceEntry{
		": a leads, with token 7":                                      record(func(e *leaderelection.RaceEntry) {}),
		": a, elected with token 7, does not extend its term any more": record(func(e *leaderelection.RaceEntry) { e.TermExpiry = time.Now().Add(-time.Minute) }),
		": a, elected with token 7, does not extend its term any more, and the record is held by its --hold until 20": record(func(e *leaderelection.RaceEntry) {
			e.TermExpiry, e.Hold = time.Now().Add(-time.Minute), time.Hour
		}),
		": the leadership with token 7 is over, and held by its --hold until 20": record(func(e *leaderelection.RaceEntry) { e.LeaderID, e.Hold = "", time.Hour }),
		": it is reserved for b until 20":                                        record(func(e *leaderelection.RaceEntry) { e.LeaderID, e.Successor = "", "b" }),
	} {
		w := wait{skew: skew}
		if got := w.who(e); !strings.HasPrefix(got, want) || !strings.HasSuffix(want, "20") && got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
	lapsed := record(func(e *leaderelection.RaceEntry) { e.TermExpiry, e.Unsynchronized = time.Now().Add(-time.Minute), true })
	if got := (&wait{skew: skew, blind: true}).who(lapsed); got != ": a leads, with token 7" {
		t.Errorf("without clocks: %q", got)
	}
}

// Who waits for a job that is done already, by a hold that is longer than the wait, need not: but
// while the job is being done, or where the hold may be over in time, it waits.
func TestWaitEndsWithAHoldThatOutlastsIt(t *testing.T) {
	const limit = time.Hour
	for name, c := range map[string]struct {
		record leaderelection.RaceEntry
		blind  bool
		ends   bool
	}{
		"done":               {leaderelection.RaceEntry{Hold: 2 * limit}, false, true},
		"being done":         {leaderelection.RaceEntry{LeaderID: "a", Hold: 2 * limit}, false, false},
		"held for less":      {leaderelection.RaceEntry{Hold: limit / 2}, false, false},
		"by the skew":        {leaderelection.RaceEntry{Hold: limit - time.Minute}, false, true},
		"not held":           {leaderelection.RaceEntry{}, false, false},
		"no clocks to go by": {leaderelection.RaceEntry{Hold: 2 * limit}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			cfg := leaderelection.Config{LeaderID: "b", TermLength: 15 * time.Second, MaxClockSkew: 2 * time.Minute, Trace: &leaderelection.Trace{}}
			if c.blind {
				cfg.ClockPolicy = leaderelection.Unsynchronized
			}
			w := newWait(limit, 0, "--wait 1h", &cfg, func() bool { return true }, cancel)
			defer w.begin()()
			c.record.ElectionNumber, c.record.TermExpiry = 3, time.Now()
			cfg.Trace.News(c.record)
			if ended := ctx.Err() != nil; ended != c.ends {
				t.Errorf("ended: %v (%v)", ended, context.Cause(ctx))
			}
			if cause := context.Cause(ctx); c.ends && (!errors.Is(cause, runner.ErrNotElected) || !strings.Contains(cause.Error(), "held by its --hold until")) {
				t.Errorf("it says %v", cause)
			}
		})
	}
}

// One try ends with a record that is another's, and not with the acquisition itself.
func TestTryEndsIfAnotherHasIt(t *testing.T) {
	for name, c := range map[string]struct {
		record leaderelection.RaceEntry
		ends   bool
	}{
		"another's":       {leaderelection.RaceEntry{LeaderID: "a"}, true},
		"acquired":        {leaderelection.RaceEntry{LeaderID: "b"}, false},
		"free":            {leaderelection.RaceEntry{}, false},
		"held for nobody": {leaderelection.RaceEntry{Hold: time.Hour}, true},
		"reserved":        {leaderelection.RaceEntry{Successor: "a"}, true},
		"reserved for it": {leaderelection.RaceEntry{Successor: "b"}, false},
		"another's, held": {leaderelection.RaceEntry{LeaderID: "c", Hold: time.Hour}, true},
	} {
		var log bytes.Buffer
		ctx, cancel := context.WithCancelCause(t.Context())
		cfg := leaderelection.Config{LeaderID: "b", TermLength: 15 * time.Second, MaxClockSkew: time.Second, Trace: &leaderelection.Trace{}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		w := newWait(0, time.Hour, "--wait 0s", &cfg, func() bool { return true }, cancel)
		stop := w.begin()
		c.record.ElectionNumber, c.record.TermExpiry = 3, time.Now().Add(time.Minute)
		cfg.Trace.News(c.record)
		if ended := ctx.Err() != nil; ended != c.ends {
			t.Errorf("%s: ended: %v (%v)", name, ended, context.Cause(ctx))
		}
		// A leader without a hold any more is a job of an earlier period, which is said.
		if said := strings.Contains(log.String(), "the last run of the job has not ended"); said != (c.record.LeaderID == "a") {
			t.Errorf("%s: logged %q", name, log.String())
		}
		stop()
		cancel(nil)
	}
}

// A candidate that is elected when its wait is over by the wall clock, as after a suspend, gives up:
// the hold that it waited for may be over, and the job be done.
func TestElectedTooLate(t *testing.T) {
	for late, ended := range map[time.Duration]bool{-time.Minute: false, time.Minute: true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		elected := 0
		cfg := leaderelection.Config{LeaderID: "b", TermLength: 15 * time.Second, MaxClockSkew: time.Second, Trace: &leaderelection.Trace{},
			OnElected: func(context.Context, *leaderelection.TimeView) { elected++ }}
		w := newWait(time.Hour, 12*time.Hour, "--wait 1h", &cfg, func() bool { return elected == 0 }, cancel)
		stop := w.begin()
		w.answered = true
		w.end = time.Now().Add(-late)
		cfg.OnElected(ctx, nil)
		if got := errors.Is(context.Cause(ctx), runner.ErrNotElected); got != ended || elected != 1 {
			t.Errorf("late by %v: ended: %v (%v), told %d times", late, got, context.Cause(ctx), elected)
		}
		stop()
		cancel(nil)
	}
}

// The log tells of a store that cannot be reached at first once, and once more when it is open.
func TestOpensPatiently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		a := &app{errOut: &log}
		tries := 0
		opened, err := patiently(t.Context(), a, func() (string, error) {
			if tries++; tries < 4 {
				return "", errors.New("nobody is there")
			}
			return "store", nil
		})
		if opened != "store" || err != nil || tries != 4 {
			t.Fatalf("%q, %v after %d tries", opened, err, tries)
		}
		a.log().Flush(time.Minute)
		for _, says := range []string{"the store cannot be opened", `msg="the store is open" after=7s failed=3`} {
			if n := strings.Count(log.String(), says); n != 1 {
				t.Errorf("it says %q %d times:\n%s", says, n, log.String())
			}
		}
		_, err = patiently(t.Context(), a, func() (string, error) { return "", leaderelection.ErrPermanent })
		if !errors.Is(err, leaderelection.ErrPermanent) {
			t.Errorf("what no retry can help: %v", err)
		}
	})
}

// A candidate is given up for stuck when two looks in a row find its lease over, and itself
// the leader.
func TestStuck(t *testing.T) {
	var s supervisor
	for i, c := range []struct{ overdue, alive bool }{{false, true}, {true, true}, {false, true}, {true, true}, {true, false}, {true, false}, {false, true}} {
		if got := s.look(c.overdue); got != c.alive {
			t.Errorf("look %d: alive %v, want %v", i, got, c.alive)
		}
	}
}
