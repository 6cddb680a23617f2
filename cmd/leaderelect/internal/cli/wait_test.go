package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
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
		": a leads, with election 7":                                      record(func(e *leaderelection.RaceEntry) {}),
		": a, elected with election 7, does not extend its term any more": record(func(e *leaderelection.RaceEntry) { e.TermExpiry = time.Now().Add(-time.Minute) }),
		": a, elected with election 7, does not extend its term any more, and the election is held by its --hold until 20": record(func(e *leaderelection.RaceEntry) {
			e.TermExpiry, e.Hold = time.Now().Add(-time.Minute), time.Hour
		}),
		": election 7 is over, and held by its --hold until 20": record(func(e *leaderelection.RaceEntry) { e.LeaderID, e.Hold = "", time.Hour }),
		": it is reserved for b until 20":                       record(func(e *leaderelection.RaceEntry) { e.LeaderID, e.Successor = "", "b" }),
	} {
		w := wait{skew: skew}
		if got := w.who(e); !strings.HasPrefix(got, want) || !strings.HasSuffix(want, "20") && got != want {
			t.Errorf("%+v: %q, want %q", e, got, want)
		}
	}
	lapsed := record(func(e *leaderelection.RaceEntry) { e.TermExpiry, e.Unsynchronized = time.Now().Add(-time.Minute), true })
	if got := (&wait{skew: skew, blind: true}).who(lapsed); got != ": a leads, with election 7" {
		t.Errorf("without clocks: %q", got)
	}
}
