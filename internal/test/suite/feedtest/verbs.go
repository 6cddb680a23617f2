package feedtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/durability"
)

// The verbs of a decider's own tests: each fails the test where it does not work.

var names atomic.Uint64

// Unique returns the name of an election that nobody has had before, on a server that
// outlives the tests either.
func Unique() string {
	return fmt.Sprintf("election-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), names.Add(1))
}

// Open opens the election at an address with a decider's Open.
func Open[D any](ctx context.Context, open func(context.Context, *url.URL) (D, error), address string) (D, error) {
	u, err := url.Parse(address)
	if err != nil {
		var none D
		return none, err
	}
	return open(ctx, u)
}

// Opened is Open for one that is to work, and is closed at the end of the test.
func Opened[D interface{ Close() error }](t testing.TB, open func(context.Context, *url.URL) (D, error), address string) D {
	t.Helper()
	d, err := Open(t.Context(), open, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

// State is a record to write.
func State(number uint64, token leaderelection.LeaderToken) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{
		LeaderID: "a", HostPort: []string{"10.0.0.1:443"}, TermExpiry: time.Now().Add(time.Minute), TermLength: 15 * time.Second,
		ElectionNumber: leaderelection.ElectionNumber(number), Incarnation: "i", Token: token,
	}
}

// Write writes State number, and returns the new token.
func Write(t testing.TB, d leaderelection.RaceDecider, number uint64, token leaderelection.LeaderToken) leaderelection.LeaderToken {
	t.Helper()
	next, err := d.WriteEntry(t.Context(), State(number, token))
	if err != nil {
		t.Fatalf("WriteEntry: %v", err)
	}
	return next
}

// Read reads the record.
func Read(t testing.TB, d leaderelection.RaceDecider) *leaderelection.RaceEntry {
	t.Helper()
	e, err := d.ReadCurrent(t.Context())
	if err != nil {
		t.Fatalf("ReadCurrent: %v", err)
	}
	return e
}

// Reads fails the test where the record is not of this election number.
func Reads(t testing.TB, d leaderelection.RaceDecider, want uint64) {
	t.Helper()
	if e := Read(t, d); uint64(e.ElectionNumber) != want {
		t.Errorf("%v: read %+v; want leadership %d", d, e, want)
	}
}

// ReadError returns the error of reading the record.
func ReadError(t testing.TB, d leaderelection.RaceDecider) error {
	_, err := d.ReadCurrent(t.Context())
	return err
}

// WriteError returns the error of writing State number.
func WriteError(t testing.TB, d leaderelection.RaceDecider, number uint64, token leaderelection.LeaderToken) error {
	_, err := d.WriteEntry(t.Context(), State(number, token))
	return err
}

// Item is what a feed yields.
type Item struct {
	*leaderelection.RaceEntry
	Err error
}

// Follow runs a feed, and returns what it yields; the channel is closed when it has
// ended. It ends with the test at the latest.
func Follow(t testing.TB, d leaderelection.ChangeFeed) <-chan Item {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan Item, 100)
	go func() {
		defer close(out)
		for e, err := range d.Changes(ctx) {
			out <- Item{e, err}
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range out {
		}
	})
	return out
}

// Next is the next thing that a feed yields.
func Next(t testing.TB, feed <-chan Item) Item {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case n, ok := <-feed:
		if !ok {
			t.Fatal("the feed has ended")
		}
		return n
	case <-timeout.C:
		t.Fatalf("no news for %v", patience)
	}
	return Item{}
}

// Number fails the test where what a feed yields next is not the record of this election.
func Number(t testing.TB, feed <-chan Item, want uint64) *leaderelection.RaceEntry {
	t.Helper()
	n := Next(t, feed)
	if n.Err != nil || uint64(n.ElectionNumber) != want {
		t.Fatalf("the feed yields %+v, %v; want leadership %d", n.RaceEntry, n.Err, want)
	}
	return n.RaceEntry
}

// Permanent fails the test where err does not say that no retry helps, or that a race was
// lost, or lacks one of these words.
func Permanent(t testing.TB, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, leaderelection.ErrPermanent) || errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("%v is not an error that no retry cures", err)
	}
	Says(t, err, words...)
}

// Denied fails the test where err does not say that access was denied, which may pass by itself, or
// lacks one of these words.
func Denied(t testing.TB, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, leaderelection.ErrDenied) {
		t.Errorf("%v does not wrap ErrDenied", err)
	}
	Says(t, err, words...)
}

// Passing fails the test where err is nil, or says that no retry helps, or that a race
// was lost, or lacks one of these words.
func Passing(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil || errors.Is(err, leaderelection.ErrPermanent) || errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("%v is not an error that may pass", err)
	}
	Says(t, err, words...)
}

// Lost fails the test where err does not say that a race was lost.
func Lost(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("%v does not wrap ErrLostRace", err)
	}
}

// Says fails the test where err lacks one of these words.
func Says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

// Warns fails the test unless there is one warning, with these words; without words,
// unless there is none.
func Warns(t testing.TB, warnings []durability.Warning, words ...string) {
	t.Helper()
	if len(words) == 0 && len(warnings) == 0 {
		return
	}
	if len(words) == 0 || len(warnings) != 1 {
		t.Errorf("the warnings are %v; want one that says %q, or none for no words", warnings, words)
		return
	}
	for _, w := range words {
		if !strings.Contains(warnings[0].String(), w) {
			t.Errorf("the warning does not say %q: %v", w, warnings[0])
		}
	}
}

// Examines fails the test unless the store can be examined, and is warned of in these words, as for
// Warns.
func Examines(t testing.TB, d interface {
	Durability(context.Context) ([]durability.Warning, error)
}, words ...string) {
	t.Helper()
	w, err := d.Durability(t.Context())
	if Warns(t, w, words...); err != nil {
		t.Errorf("Durability: %v", err)
	}
}
