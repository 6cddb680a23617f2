//go:build go1.25

package memory_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

func TestConformance(t *testing.T) {
	decidertest.Run(t, func(testing.TB) func() leaderelection.RaceDecider {
		election := memory.NewDecider()
		return func() leaderelection.RaceDecider { return election.Handle() }
	}, nil)
}

// write writes entry with token, and fails the test if that does not work.
func write(t testing.TB, d leaderelection.RaceDecider, token leaderelection.LeaderToken, entry leaderelection.RaceEntry) leaderelection.LeaderToken {
	t.Helper()
	entry.Token = token
	next, err := d.WriteEntry(t.Context(), &entry)
	if err != nil || next == nil {
		t.Fatalf("WriteEntry = %v, %v", next, err)
	}
	return next
}

func entry(id string, number, extension uint64) leaderelection.RaceEntry {
	return leaderelection.RaceEntry{LeaderID: id, ElectionNumber: leaderelection.ElectionNumber(number), Extension: extension}
}

func TestEntryAndReplace(t *testing.T) {
	d := memory.NewDecider()
	if e := d.Entry(); !e.Vacant() || e.ElectionNumber != leaderelection.NoElections || e.Token == nil {
		t.Fatalf("empty election: %+v", e)
	}
	first := write(t, d, nil, entry("a", 1, 0))

	rival := d.Entry()
	rival.LeaderID, rival.ElectionNumber = "rival", 2
	rival.TermExpiry = time.Now().In(time.FixedZone("x", 3600))
	d.Replace(rival)
	e := d.Handle().Entry()
	if e.LeaderID != "rival" || !e.TermExpiry.Equal(rival.TermExpiry) || e.TermExpiry.Location() != time.UTC || e.TermExpiry != e.TermExpiry.Round(0) {
		t.Errorf("after Replace: %+v", e)
	}
	stale := entry("a", 1, 1)
	stale.Token = first
	var lost *leaderelection.LostRaceError
	if _, err := d.WriteEntry(t.Context(), &stale); !errors.As(err, &lost) || lost.Current.LeaderID != "rival" {
		t.Errorf("the deposed leader's write: %v", err)
	}
	write(t, d, lost.Current.Token, entry("a", 3, 0))

	d.Replace(nil)
	if e := d.Entry(); !e.Vacant() || e.ElectionNumber != leaderelection.NoElections {
		t.Errorf("after Replace(nil): %+v", e)
	}
	write(t, d, nil, entry("b", 1, 0))
}

func TestWriteRefusesWhatNoStoreKeeps(t *testing.T) {
	d := memory.NewDecider()
	for _, e := range []*leaderelection.RaceEntry{
		nil,
		{LeaderID: "\xff"},
		{LeaderID: leaderelection.AnySuccessor},
		{TermLength: -1},
	} {
		if _, err := d.WriteEntry(t.Context(), e); !errors.Is(err, leaderelection.ErrPermanent) || errors.Is(err, leaderelection.ErrLostRace) {
			t.Errorf("WriteEntry(%+v) = %v, want an ErrPermanent", e, err)
		}
	}
	if e := d.Entry(); !reflect.DeepEqual(e, &leaderelection.RaceEntry{Token: e.Token}) {
		t.Errorf("a trace is left: %+v", e)
	}
}

func TestTokenOfAnotherElectionLoses(t *testing.T) {
	one, two := memory.NewDecider(), memory.NewDecider()
	e := entry("a", 1, 0)
	e.Token = two.Entry().Token
	if _, err := one.WriteEntry(t.Context(), &e); !errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("WriteEntry = %v", err)
	}
}

func TestPolledHasNoFeed(t *testing.T) {
	d := memory.NewDecider()
	d.Inject(memory.Fail(errors.ErrUnsupported)) // whose faults it has
	polled := d.Polled()
	_, err := polled.ReadCurrent(t.Context())
	if _, feeds := polled.(leaderelection.ChangeFeed); feeds || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("it is a ChangeFeed: %v; ReadCurrent = %v", feeds, err)
	}
}

func TestFeedMergesWhatItIsNotAskedFor(t *testing.T) {
	d := memory.NewDecider()
	var seen []string
	for e, err := range d.Changes(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, e.LeaderID)
		if len(seen) == 2 {
			break
		}
		token := write(t, d, e.Token, entry("merged", 1, 0))
		write(t, d, token, entry("last", 1, 1))
	}
	if want := []string{"", "last"}; !reflect.DeepEqual(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
}

func TestFailOver(t *testing.T) { testFailOver(t) }
