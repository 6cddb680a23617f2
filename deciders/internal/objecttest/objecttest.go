// Package objecttest holds the fences on objects to what they all promise, on the
// store's server or its emulator. It is for tests.
package objecttest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/object"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// Object is one object of a store, and a client of it.
type Object interface {
	// Put writes through the fence.
	Put(ctx context.Context, token fence.Token, content string) error
	// Plain writes as one does who knows of no fence.
	Plain(ctx context.Context, content string, metadata map[string]string) error
	// Read returns what there is.
	Read(ctx context.Context) (content string, metadata map[string]string, err error)
	// Delete deletes it.
	Delete(ctx context.Context) error
}

// Raiser is an Object whose fence can be raised without a write.
type Raiser interface {
	Raise(ctx context.Context, token fence.Token) error
}

// Make returns the object of that name, by a client that sends its requests
// through rt.
type Make func(t *testing.T, name string, rt http.RoundTripper) Object

// Run runs the suite.
func Run(t *testing.T, mk Make) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s *suite)
	}{
		{"InTurn", inTurn},
		{"BeforeThereWasAFence", beforeTheFence},
		{"MetadataThatIsNone", metadataThatIsNone},
		{"OwnMetadataStays", ownMetadataStays},
		{"AnotherBetweenLookAndWrite", between},
		{"DeletedBetween", deletedBetween},
		{"AnswerLost", answerLost},
		{"AnswerLostThenDeposed", answerLostThenDeposed},
		{"RequestLost", requestLost},
		{"CtxEnded", ctxEnded},
		{"AtOnce", atOnce},
		{"Raise", raises},
		{"Lies", lies},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &suite{wire: new(Wire), make: func(rt http.RoundTripper) Object { return mk(t, "orders/"+c.name, rt) }}
			s.Object = s.make(s.wire)
			other := new(Wire)
			s.other = s.make(other)
			c.run(t, s)
			s.wire.CloseIdleConnections()
			other.CloseIdleConnections()
		})
	}
}

// text is a content under orders:n, with the mark that fences3 wants.
func text(n uint64, what string) string {
	return fmt.Sprintf("%s fencing(%v)", what, fencetest.Orders(n))
}

// put writes under orders:n.
func put(ctx context.Context, o Object, n uint64, what string) error {
	return o.Put(ctx, fencetest.Orders(n), text(n, what))
}

// suite is one test's object, reached through wire.
type suite struct {
	Object
	wire  *Wire
	other Object // the same object, reached another way
	make  func(http.RoundTripper) Object
	now   string // what it should hold
	tries int
}

// writes fails the test unless a write under orders:n ends with want, and the object then holds the new
// content, or if the write was refused what it held.
func (s *suite) writes(t *testing.T, n uint64, want error) {
	t.Helper()
	s.tries++
	what := fmt.Sprint("try ", s.tries)
	if err := put(t.Context(), s, n, what); !errors.Is(err, want) {
		t.Fatalf("under %d: %v, want %v", n, err, want)
	}
	if want == nil {
		s.now = text(n, what)
	}
	s.holds(t)
}

func (s *suite) holds(t *testing.T) {
	t.Helper()
	if got, _, err := s.Read(t.Context()); err != nil || got != s.now {
		t.Fatalf("the object holds %q, want %q (%v)", got, s.now, err)
	}
}

// before has another do something before the next write, and what the object holds then.
func (s *suite) before(t *testing.T, now string, do func() error) {
	s.now = now
	s.wire.beforeWrite(func() {
		if err := do(); err != nil {
			t.Error(err)
		}
	})
}

// overtakes has another write under orders:n before the next write.
func (s *suite) overtakes(t *testing.T, n uint64) {
	s.before(t, text(n, "another's"), func() error { return put(t.Context(), s.other, n, "another's") })
}

func inTurn(t *testing.T, s *suite) {
	for _, n := range []uint64{2, 2, 5, 5, 10} {
		s.writes(t, n, nil)
		s.writes(t, n-1, fence.ErrStale)
	}
	var stale *fence.StaleError
	err := put(t.Context(), s, 3, "late")
	if !errors.As(err, &stale) || stale.Greatest != 10 || stale.Token != fencetest.Orders(3) || !strings.Contains(err.Error(), "orders/InTurn") {
		t.Errorf("%v", err)
	}
	before := s.wire.sent()
	if err := s.Put(t.Context(), fence.Token{Election: "orders"}, text(10, "none")); !errors.Is(err, fence.ErrNoToken) || s.wire.sent() != before {
		t.Errorf("without a token: %v, and %d requests", err, s.wire.sent()-before)
	}
	for _, bad := range fencetest.NotTokens() {
		if err := s.Put(t.Context(), bad, text(10, "none")); !errors.Is(err, fence.ErrMalformed) || s.wire.sent() != before {
			t.Errorf("%v: %v, and %d requests", bad, err, s.wire.sent()-before)
		}
	}
}

// An object from before there was a fence takes any token, and has one then.
func beforeTheFence(t *testing.T, s *suite) {
	s.now = "old"
	if err := s.Plain(t.Context(), s.now, map[string]string{"team": "a"}); err != nil {
		t.Fatal(err)
	}
	s.writes(t, 3, nil)
	s.writes(t, 2, fence.ErrStale)
}

// What is in the metadata and is no token of this election is left alone.
func metadataThatIsNone(t *testing.T, s *suite) {
	for bad, want := range map[string]error{
		"7": fence.ErrMalformed, "orders:": fence.ErrMalformed, "orders:-1": fence.ErrMalformed, "orders:1, orders:2": fence.ErrMalformed,
		"orders:99999999999999999999": fence.ErrMalformed, "users:1": fence.ErrOtherElection, "orders%2Feu:1": fence.ErrOtherElection,
	} {
		s.now = "is " + bad
		if err := s.Plain(t.Context(), s.now, map[string]string{object.TokenName: bad}); err != nil {
			t.Fatal(err)
		}
		s.writes(t, 9, want)
		if err := put(t.Context(), s, 9, "over it"); !strings.Contains(err.Error(), object.TokenName) {
			t.Errorf("it does not name the metadata: %v", err)
		}
	}
}

// The fence's names are the only ones that it takes.
func ownMetadataStays(t *testing.T, s *suite) {
	s.writes(t, 1, nil)
	_, m, err := s.Read(t.Context())
	seen := object.Seen{Metadata: m}
	if err != nil || seen.Mark("team") != "a" || seen.Mark(object.TokenName) != "orders:1" || seen.Mark(object.WriteName) == "" {
		t.Errorf("the metadata is %v, %v", m, err)
	}
}

// The new leader writes between the old one's look and its write, which is what
// happens to a leader that is stopped there.
func between(t *testing.T, s *suite) {
	for _, c := range []struct {
		other, own uint64
		want       error
	}{
		{2, 1, fence.ErrStale}, // of an object that there was not
		{4, 3, fence.ErrStale}, // of one that there was
		{4, 5, nil},            // the other way round: the new one looks again, and writes
		{5, 5, nil},
	} {
		s.overtakes(t, c.other)
		s.writes(t, c.own, c.want)
	}
	s.before(t, "unfenced", func() error { return s.other.Plain(t.Context(), "unfenced", nil) })
	s.writes(t, 6, nil)
}

func deletedBetween(t *testing.T, s *suite) {
	s.writes(t, 1, nil)
	s.before(t, "", func() error { return s.other.Delete(t.Context()) })
	s.writes(t, 2, nil)
}

// A write whose answer is lost is known again, whether the client repeats it or
// not.
func answerLost(t *testing.T, s *suite) {
	for n := uint64(1); n <= 2; n++ { // an object that there is not, and one that there is
		s.wire.lose(loss{answers: 1})
		s.writes(t, n, nil)
		if len(s.wire.accepted()) != int(n) {
			t.Errorf("accepted: %v", s.wire.accepted())
		}
	}
}

// The answer is lost, and before anybody asks, another one leads and writes.
func answerLostThenDeposed(t *testing.T, s *suite) {
	s.writes(t, 1, nil)
	s.wire.lose(loss{answers: 1, then: func() {
		s.now = text(2, "new leader")
		if err := put(t.Context(), s.other, 2, "new leader"); err != nil {
			t.Error(err)
		}
	}})
	s.writes(t, 1, fence.ErrStale)
}

// A write that never arrives is an error, and no refusal.
func requestLost(t *testing.T, s *suite) {
	s.writes(t, 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var tries atomic.Int64
	s.wire.lose(loss{requests: true, each: func() {
		if tries.Add(1) == 10 {
			cancel() // for a client that never gives up
		}
	}})
	err := put(ctx, s, 1, "lost")
	if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "orders/RequestLost") {
		t.Errorf("%v", err)
	}
	s.wire.lose(loss{})
	s.holds(t)
}

func ctxEnded(t *testing.T, s *suite) {
	s.writes(t, 1, nil)
	for _, when := range []string{"before", "in the middle"} {
		ctx, cancel := context.WithCancel(t.Context())
		if when == "before" {
			cancel()
		} else {
			s.wire.beforeWrite(cancel)
		}
		if err := put(ctx, s, 2, "second"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "writing ") || !strings.Contains(err.Error(), "orders/CtxEnded") {
			t.Errorf("%s: %v", when, err)
		}
		if cancel(); when == "before" {
			s.holds(t)
		}
	}
}

// Many writers of several leaderships: the server's own order of accepted writes never
// goes back, all are either accepted or refused as stale, and what is there at
// the end is the greatest's.
func atOnce(t *testing.T, s *suite) {
	const writers, rounds = 6, 8
	var wg sync.WaitGroup
	for i := range uint64(writers) {
		o := s.make(s.wire)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range uint64(rounds) {
				if err := put(t.Context(), o, 1+n+i%3, fmt.Sprint("writer ", i)); err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	greatest, accepted := leaderelection.NoElections, s.wire.accepted()
	for _, a := range accepted {
		token, err := fence.ParseToken(a)
		if err != nil || token.Number < greatest {
			t.Fatalf("a write under %v (%v) was accepted after one under %d, of %v", token, err, greatest, accepted)
		}
		greatest = token.Number
	}
	t.Logf("%d accepted of %d", len(accepted), writers*rounds)
	if content, _, err := s.Read(t.Context()); err != nil || !strings.HasSuffix(content, "(orders:10)") {
		t.Errorf("the object holds %q, %v", content, err)
	}
}

// raises is for objects whose fence can be raised without a write.
func raises(t *testing.T, s *suite) {
	a, ok := s.Object.(Raiser)
	if !ok {
		return
	}
	raise := func(n uint64) error { return a.Raise(t.Context(), fencetest.Orders(n)) }
	if err := raise(1); err == nil || errors.Is(err, fence.ErrStale) {
		t.Fatalf("of no object: %v", err)
	}
	s.writes(t, 1, nil)
	for range 2 {
		if err := raise(3); err != nil {
			t.Fatal(err)
		}
		s.holds(t)
	}
	if err := raise(2); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a smaller one: %v", err)
	}
	s.writes(t, 2, fence.ErrStale)
	s.writes(t, 3, nil)
	if _, m, err := s.Read(t.Context()); err != nil || (object.Seen{Metadata: m}).Mark("team") == "" {
		t.Errorf("the metadata is %v, %v", m, err)
	}
	// Raised between the look and the write, it refuses the write.
	s.before(t, s.now, func() error { return s.other.(Raiser).Raise(t.Context(), fencetest.Orders(5)) })
	s.writes(t, 4, fence.ErrStale)
	// And the other way round.
	s.overtakes(t, 7)
	if err := raise(6); !errors.Is(err, fence.ErrStale) {
		t.Errorf("another wrote in between: %v", err)
	}
	s.holds(t)
}

// Blind is an Object whose store's answers to a look have nothing that binds the
// version to the rest, and says why.
type Blind interface{ Blind() string }

// Whatever answers in place of the server, a write that did not happen is an error, and
// a write under an old token changes nothing.
func lies(t *testing.T, s *suite) {
	looks := func(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
	writes := func(r *http.Request) bool { return !looks(r) }
	n := uint64(1)
	for _, lie := range httpfault.Lies() {
		liar := &httpfault.Liar{Next: s.wire}
		o := s.make(liar)
		for range 3 { // for replays, of looks and of writes
			n++
			if err := put(t.Context(), o, n, "true"); err != nil {
				t.Fatal(err)
			}
			if a, ok := o.(Raiser); ok {
				n++
				if err := a.Raise(t.Context(), fencetest.Orders(n)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := put(t.Context(), o, n-1, "late"); !errors.Is(err, fence.ErrStale) {
			t.Fatal(err) // a look at what is there now, for replays
		}
		var err error
		if s.now, _, err = s.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		for what, about := range map[string]func(*http.Request) bool{"all": nil, "writes": writes, "looks": looks} {
			for which, under := range map[string]uint64{"new": n + 1, "old": n - 1} {
				if what == "looks" && which == "new" {
					continue // whose write may happen
				}
				if b, ok := o.(Blind); ok && what == "looks" && lie.Name == "OldAnswerNewestETag" && b.Blind() != "" {
					continue
				}
				liar.About = about
				liar.Tell(&lie)
				late := lie.Replay && which == "old" // a fence that is beyond it was raised to it, once
				lied(t, o, under, late, lie.Name+", about "+what+", under a token that is "+which)
				liar.Tell(nil)
				s.holds(t)
			}
		}
	}
}

// lied writes, and raises the fence. Some clients repeat what was cut off for as long
// as their ctx lasts.
func lied(t *testing.T, o Object, n uint64, late bool, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := put(ctx, o, n, "lie"); err == nil {
		t.Errorf("%s: it is said to be written", what)
	}
	if a, ok := o.(Raiser); ok {
		if err := a.Raise(ctx, fencetest.Orders(n)); err == nil && !late {
			t.Errorf("%s: the fence is said to be raised", what)
		}
	}
}
