package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// version is a version of the backend's.
type version int

func (version) CommitTS() time.Time { return time.Time{} }

// backend is a store in memory, whose calls fail with err.
type backend struct {
	at   version
	data []byte
	err  error
	late string // what WhyLate says

	deaf  func(at version) bool // whether a condition is taken no notice of; nil: none
	swaps int
	fails int // this one of the swaps fails, and has not happened
}

var (
	errOther   = errors.New("another version")
	errGone    = errors.New("no such table")
	errStrange = errors.New("the client's clock is off")
	errBusy    = errors.New("busy")
	errTooMany = errors.New("too many requests")
)

func (b *backend) Load(context.Context) (store.Stored[version], error) {
	return store.Stored[version]{Data: b.data, At: b.at, None: b.at == 0}, b.err
}

func (b *backend) Swap(_ context.Context, at version, data []byte, e *leaderelection.RaceEntry) (version, error) {
	if b.swaps++; b.swaps == b.fails {
		return 0, errBusy
	}
	if b.deaf != nil && b.deaf(at) {
		at = b.at
	}
	switch {
	case b.err != nil:
		return 0, b.err
	case at != b.at && e.LeaderID == "tells":
		return 0, &store.Refusal[version]{Current: store.Stored[version]{Data: b.data, At: b.at}, Err: errOther}
	case at != b.at && e.LeaderID == "knows":
		return 0, &leaderelection.LostRaceError{}
	case at != b.at:
		return 0, fmt.Errorf("refused: %w", errOther)
	}
	b.data, b.at = bytes.Clone(data), b.at+1
	return b.at, nil
}

func (b *backend) Judge(err error) store.Verdict {
	switch {
	case errors.Is(err, errOther):
		return store.Lost
	case errors.Is(err, errTooMany):
		return store.Verdict{Advice: "ask less often", After: store.RetryAfter("7")}
	case errors.Is(err, errStrange):
		return store.Passing("set it right")
	}
	return store.Remedies{{Err: errGone, Advice: "make the table"}, {Part: "in words", Advice: "read them"}}.Judge(err)
}

func (b *backend) WhyLate() string { return b.late }

func election(b *backend) *store.Election[version] {
	return &store.Election[version]{Store: b, Package: "fake", Place: "place 1"}
}

func entry(number leaderelection.ElectionNumber, t leaderelection.LeaderToken) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: number, TermLength: time.Second, TermExpiry: time.Unix(1, 0).UTC(), Incarnation: "i", Token: t}
}

// What is written is read, by its version, and a stale version loses.
func TestReadAndWrite(t *testing.T) {
	b := &backend{}
	e := election(b)
	empty, err := e.Read(t.Context())
	if err != nil || empty.ElectionNumber != 0 || empty.Token != version(0) {
		t.Fatalf("%+v, %v", empty, err)
	}
	first, err := e.Write(t.Context(), entry(1, nil))
	if err != nil || first != version(1) {
		t.Fatal(first, err)
	}
	if _, err := e.Write(t.Context(), entry(2, empty.Token)); !errors.Is(err, leaderelection.ErrLostRace) || !errors.Is(err, errOther) || !strings.Contains(err.Error(), "place 1") {
		t.Error(err)
	}
	for _, id := range []string{"tells", "knows"} {
		stale := entry(2, empty.Token)
		stale.LeaderID = id
		var lost *leaderelection.LostRaceError
		_, err := e.Write(t.Context(), stale)
		if !errors.As(err, &lost) || lost.Place != "place 1" || (lost.Current != nil) != (id == "tells") {
			t.Error(err)
		}
		if id == "tells" && (lost.Current.LeaderID != "a" || lost.Current.Token != first || !errors.Is(err, errOther)) {
			t.Errorf("%+v", lost)
		}
	}
	got, err := e.Read(t.Context())
	if err != nil || got.ElectionNumber != 1 || got.LeaderID != "a" || got.Token != first {
		t.Errorf("%+v, %v", got, err)
	}
}

// An empty record is damage, and not an empty election.
func TestEmptyRecord(t *testing.T) {
	for _, data := range [][]byte{nil, {}} {
		e, err := election(&backend{at: 1, data: data}).Read(t.Context())
		wants(t, err, true, "place 1", "it is empty")
		if e != nil {
			t.Errorf("%+v", e)
		}
	}
}

type alien struct{}

func (alien) CommitTS() time.Time { return time.Time{} }

func wants(t *testing.T, err error, permanent bool, words ...string) {
	t.Helper()
	if err == nil || errors.Is(err, leaderelection.ErrPermanent) != permanent {
		t.Fatalf("%v; want an error, for good: %v", err, permanent)
	}
	for _, w := range words {
		if strings.Count(err.Error(), w) != 1 {
			t.Errorf("want %q once in: %v", w, err)
		}
	}
}

// What can never be written is refused before the store is asked.
func TestWriteRefuses(t *testing.T) {
	b := &backend{err: errors.New("asked")}
	_, err := election(b).Write(t.Context(), entry(1, alien{}))
	wants(t, err, true, "leaderelection/fake: writing place 1: ", "store_test.alien", "another kind of store")
	_, err = election(b).Write(t.Context(), nil)
	wants(t, err, true, "place 1")
	e := election(b)
	e.Wrong = errors.New("the name is too long")
	_, err = e.Write(t.Context(), entry(1, nil))
	wants(t, err, true, "writing place 1: the name is too long", "no retry can help")
	_, err = e.Read(t.Context())
	wants(t, err, true, "reading place 1: the name is too long", "no retry can help")
}

// An error names the place once, and the advice, and hides what is secret.
func TestFailed(t *testing.T) {
	for name, c := range map[string]struct {
		err       error
		permanent bool
		words     []string
	}{
		"known":            {errGone, true, []string{"place 1: no such table: ", "no retry can help: make the table"}},
		"by words":         {errors.New("told in words"), true, []string{"read them"}},
		"passing":          {errStrange, false, []string{"place 1: the client's clock is off: set it right"}},
		"unknown":          {errBusy, false, []string{"place 1: busy"}},
		"ours":             {store.Wrong("no such thing as %d", 7), true, []string{"no such thing as 7", "no retry can help"}},
		"ours, by a known": {store.Wrong("%w", errGone), true, []string{"place 1: no such table: ", "no retry can help"}},
		"a refusal":        {errOther, false, []string{"place 1: another version"}},
		"an address":       {errors.New(`Get "http://host/x?sig=geheim": refused`), false, []string{"http://host/x?sig=xxxxx"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := election(&backend{err: c.err}).Read(t.Context())
			wants(t, err, c.permanent, append(c.words, "leaderelection/fake: reading place 1: ")...)
			if strings.Contains(err.Error(), "geheim") || !errors.Is(err, c.err) || errors.Is(err, leaderelection.ErrLostRace) {
				t.Error(err)
			}
			if again := election(&backend{}).Failed(t.Context(), "following", err); again != err {
				t.Errorf("said twice: %v", again)
			}
		})
	}
}

// The end of ctx is an error's reason, whatever the client made of it.
func TestFailedLate(t *testing.T) {
	reason := errors.New("the caller's own")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	b := &backend{err: errGone, late: "there is no connection"}
	_, err := election(b).Read(ctx)
	wants(t, err, false, "reading place 1: ", "(there is no connection)")
	if !errors.Is(err, context.Canceled) || !errors.Is(err, reason) {
		t.Error(err)
	}
	wants(t, election(b).Failed(ctx, store.Writing, errGone), false, "context canceled", "no such table")
}

// A feed's error comes once, complete; none comes after the loop was left, or ctx ended.
func TestFollow(t *testing.T) {
	e := election(&backend{at: 1, data: []byte("damaged")})
	two := func(err error) iter.Seq2[*leaderelection.RaceEntry, error] {
		return e.Follow(t.Context(), func(_ context.Context, yield func(*leaderelection.RaceEntry) bool) error {
			for n := range leaderelection.ElectionNumber(2) {
				if !yield(entry(n, nil)) {
					return nil
				}
			}
			return err
		})
	}
	_, damaged := e.Read(t.Context())
	for name, c := range map[string]struct {
		end   error
		words []string
	}{
		"the client's": {errBusy, []string{"leaderelection/fake: following place 1: busy"}},
		"complete":     {damaged, []string{"place 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			entries := 0
			var last error
			for entry, err := range two(c.end) {
				if last = err; entry != nil {
					entries++
				}
			}
			wants(t, last, c.end == damaged, c.words...)
			if entries != 2 {
				t.Errorf("%d entries", entries)
			}
		})
	}
	for range two(errBusy) {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	for _, err := range e.Follow(ctx, func(context.Context, func(*leaderelection.RaceEntry) bool) error {
		cancel()
		return ctx.Err()
	}) {
		t.Errorf("after the end of ctx: %v", err)
	}
	e.Wrong = errors.New("no name")
	for _, err := range two(nil) {
		wants(t, err, true, "following place 1: no name")
	}
}

// tagged has versions that tell whose record they are.
type tagged struct{ *backend }

func (tagged) Of(e *leaderelection.RaceEntry, at version) version {
	return at + 1000*version(e.ElectionNumber)
}

// A version may have what the record says.
func TestVersioner(t *testing.T) {
	b := &backend{}
	e := &store.Election[version]{Store: tagged{b}, Package: "fake", Place: "place 1"}
	if empty, err := e.Read(t.Context()); err != nil || empty.Token != version(0) {
		t.Fatal(empty, err)
	}
	if _, err := e.Write(t.Context(), entry(7, nil)); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Read(t.Context()); err != nil || got.Token != version(7001) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A feed tells of nothing that was read before it was heard of, and nothing twice, even
// if whoever is given an entry changes it.
func TestNews(t *testing.T) {
	heard := []*leaderelection.RaceEntry{entry(3, version(3)), entry(2, version(2)), entry(3, version(3)), entry(4, version(4)), entry(4, version(5)), entry(1, version(6))}
	next := func() (*leaderelection.RaceEntry, error) {
		if len(heard) == 0 {
			return nil, io.EOF
		}
		e := heard[0]
		heard = heard[1:]
		return e, nil
	}
	var told []leaderelection.LeaderToken
	err := store.News(entry(3, version(3)), next, func(e *leaderelection.RaceEntry) bool {
		told = append(told, e.Token)
		*e = leaderelection.RaceEntry{}
		return true
	})
	if want := []leaderelection.LeaderToken{version(3), version(4), version(5)}; !slices.Equal(told, want) || err != io.EOF {
		t.Errorf("it tells of %v and ends with %v, want %v and what next ends with", told, err, want)
	}
	heard = []*leaderelection.RaceEntry{entry(5, version(7))}
	if err := store.News(entry(3, version(3)), next, func(*leaderelection.RaceEntry) bool { return false }); err != nil || len(heard) != 1 {
		t.Errorf("a feed that is left returns %v, and has asked on: %v", err, len(heard) == 0)
	}
}

// doubted is an election on a server that may be an imitation.
func doubted(b *backend) *store.Election[version] {
	e := election(b)
	never := version(-1)
	e.Never = &never
	return e
}

// A first write counts when the server has refused two that it must, and no later one asks
// again.
func TestProved(t *testing.T) {
	b := &backend{}
	e := doubted(b)
	first, err := e.Write(t.Context(), entry(1, nil))
	if err != nil || first != version(1) || b.swaps != 3 {
		t.Fatal(first, err, b.swaps)
	}
	if second, err := e.Write(t.Context(), entry(2, first)); err != nil || second != version(2) || b.swaps != 4 {
		t.Error(second, err, b.swaps)
	}
	if _, err := e.Read(t.Context()); err != nil || b.swaps != 4 {
		t.Error(err, b.swaps)
	}
}

// A server that takes no notice of one of the conditions has nobody lead: neither a write
// nor a read of what it has written counts.
func TestImitation(t *testing.T) {
	for says, deaf := range map[string]func(version) bool{
		"that there is no record":                          func(at version) bool { return at == 0 },
		"that the record has a version which it never had": func(at version) bool { return at != 0 },
	} {
		for _, there := range []bool{false, true} {
			b := &backend{deaf: deaf}
			e := doubted(b)
			var token leaderelection.LeaderToken
			if there {
				b.data, b.at = []byte(`{"leaderelection":1,"leader_id":"b","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"i"}`), 1
				now, err := e.Read(t.Context())
				if err != nil || b.swaps != 0 {
					t.Fatal(err, b.swaps)
				}
				token = now.Token
			}
			_, err := e.Write(t.Context(), entry(8, token))
			wants(t, err, true, "place 1", says, "several would lead")
			_, err = e.Read(t.Context())
			wants(t, err, true, says)
			_, err = e.Write(t.Context(), entry(9, token))
			wants(t, err, true, says)
		}
	}
}

// What was written before the server was tried is not read back as written, either.
func TestProofInterrupted(t *testing.T) {
	for fails := 2; fails <= 3; fails++ {
		for _, sound := range []bool{true, false} {
			b := &backend{fails: fails}
			if !sound && fails == 3 {
				b.deaf = func(at version) bool { return at == -1 }
			} else if !sound {
				b.deaf = func(version) bool { return true }
			}
			e := doubted(b)
			if _, err := e.Write(t.Context(), entry(1, nil)); err == nil || !errors.Is(err, errBusy) || errors.Is(err, leaderelection.ErrPermanent) {
				t.Fatal(err)
			}
			// A refusal shows nothing of what was written.
			stale := entry(2, version(7))
			stale.LeaderID = "tells"
			if _, err := e.Write(t.Context(), stale); sound {
				var lost *leaderelection.LostRaceError
				if !errors.As(err, &lost) || lost.Current != nil {
					t.Errorf("%v: %+v", err, lost)
				}
			}
			before := b.swaps
			got, err := e.Read(t.Context())
			if sound && (err != nil || got.LeaderID != "a" || b.swaps != before+2) {
				t.Errorf("%+v, %v, after %d swaps", got, err, b.swaps-before)
			}
			if !sound && !errors.Is(err, leaderelection.ErrPermanent) {
				t.Errorf("%+v, %v", got, err)
			}
		}
	}
}

// A pause that the store asks for is a number of seconds, or a date. However long it is, its seconds
// fit in 32 bits, as those of a Kubernetes server must.
func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "0": 0, "-1": 0, "soon": 0, "1.5s": 0, "1.": 0, ".5": 0, "1e3": 0, "inf": 0, "Wed, 21 Oct 2015 07:28:00 GMT": 0,
		"20.5": 21 * time.Second, "20.0": 20 * time.Second, "0.001": time.Second, "0.0": 0,
	} {
		if got := store.RetryAfter(header); got != want {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
	for _, header := range []string{"99999999999999", "99999999999999999999", "99999999999999999999.5", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		if got := store.RetryAfter(header); got < 365*24*time.Hour || got/time.Second > math.MaxInt32 {
			t.Errorf("%q: %v, want years", header, got)
		}
	}
	if got := store.RetryAfter(time.Now().Add(time.Hour).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")); got < 59*time.Minute || got > time.Hour {
		t.Errorf("a date in an hour: %v", got)
	}
	_, err := election(&backend{err: errTooMany}).Read(t.Context())
	var asked *leaderelection.RetryAfterError
	if !errors.As(err, &asked) || asked.After != 7*time.Second || !errors.Is(err, errTooMany) || !strings.Contains(err.Error(), "ask less often") || !strings.Contains(err.Error(), "7s") {
		t.Errorf("%v", err)
	}
}

// What was never a record is damage only where nothing but a record can be: Reset overwrites damage.
func TestForeign(t *testing.T) {
	for _, ours := range []bool{true, false} {
		e := &store.Election[version]{Store: &backend{at: 7, data: []byte("hello")}, Package: "fake", Place: "place 1", Ours: ours}
		_, err := e.Read(t.Context())
		var damage *leaderelection.DamagedRecordError
		if !errors.Is(err, leaderelection.ErrPermanent) || errors.As(err, &damage) != ours || strings.Contains(err.Error(), "Reset does not overwrite it") == ours {
			t.Errorf("ours %v: %v", ours, err)
		}
	}
}

// A first write whose proof was cut short, on a server that may be an imitation, counts no more with a new
// client than with the one that made it.
func TestInherit(t *testing.T) {
	b := &backend{fails: 2, deaf: func(version) bool { return true }}
	first := doubted(b)
	if _, err := first.Write(t.Context(), entry(1, nil)); !errors.Is(err, errBusy) {
		t.Fatal(err)
	}
	second := doubted(b)
	second.Inherit(first)
	if e, err := second.Read(t.Context()); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("a new client takes it as written: %+v, %v", e, err)
	}
}
