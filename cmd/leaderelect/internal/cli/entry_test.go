package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
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
		if got := who(e, skew, false); !strings.HasPrefix(got, want) || !strings.HasSuffix(want, "20") && got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
	lapsed := record(func(e *leaderelection.RaceEntry) { e.TermExpiry, e.Unsynchronized = time.Now().Add(-time.Minute), true })
	if got := who(lapsed, skew, true); got != ": a leads, with token 7" {
		t.Errorf("without clocks: %q", got)
	}
}

// What is left of a wait includes the opening of the store, by the wall clock.
func TestWhatIsLeftOfTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, url := &app{errOut: io.Discard}, "file://"+filepath.Join(t.TempDir(), "election.json")
		for want, e := range map[time.Duration]*entry{
			-1: {}, 0: {waits: true}, time.Minute: {waits: true, wait: time.Minute + time.Second}, time.Millisecond: {waits: true, wait: time.Millisecond},
		} {
			d, err := e.open(t.Context(), a, url)
			must(t, err)
			store.Close(d)
			if time.Sleep(time.Second); e.left() != want {
				t.Errorf("%+v: %v are left, want %v", e, e.left(), want)
			}
		}
		if e := (entry{try: true}); e.left() != 0 {
			t.Errorf("--try: %v are left", e.left())
		}
	})
}

// Whose job is led by a run of an earlier period, which has outlasted its hold, is told.
func TestOverrunIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		leader leaderelection.RaceEntry
		code   int
		told   bool
	}{
		"an earlier run":       {leaderelection.RaceEntry{LeaderID: "a"}, exitNotElected, true},
		"told of all the same": {leaderelection.RaceEntry{LeaderID: "a"}, 0, true},
		"this one":             {leaderelection.RaceEntry{LeaderID: "a", Hold: time.Hour}, exitNotElected, false},
		"it is over":           {leaderelection.RaceEntry{Hold: time.Hour}, exitNotElected, false},
	} {
		var log bytes.Buffer
		a := &app{errOut: &log, common: common{term: 15 * time.Second, skew: time.Second}}
		c.leader.TermExpiry = time.Now().Add(time.Minute)
		verdict, is := (&entry{try: true, hold: time.Hour, code: c.code}).notElected(a, fmt.Errorf("x: %w", &leaderelection.NotElectedError{Leader: c.leader}))
		a.log().Flush(time.Minute)
		if told := strings.Contains(log.String(), "the last run of the job has not ended"); told != c.told || !is || (verdict == nil) != (c.code == 0) {
			t.Errorf("%s: %v; logged %q", name, verdict, log.String())
		}
	}
	if _, is := (&entry{}).notElected(&app{}, leaderelection.ErrClockSkew); is {
		t.Error("a wrong clock is taken for another's leadership")
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
