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
		{"Raise", admit},
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

// text is a content under a token, with the mark that fences3 wants.
func text(t fence.Token, what string) string { return fmt.Sprintf("%s fencing(%v)", what, t) }

// suite is one test's object, reached through wire.
type suite struct {
	Object
	wire  *Wire
	other Object // the same object, reached another way
	make  func(http.RoundTripper) Object
}

// put writes, and says what the object holds then: the new content, or where the
// write is refused with want, what it held before.
func (s *suite) put(t *testing.T, token fence.Token, what string, want error) {
	t.Helper()
	before, _, _ := s.Read(t.Context())
	err := s.Put(t.Context(), token, text(token, what))
	if !errors.Is(err, want) {
		t.Fatalf("%v: %v, want %v", token, err, want)
	}
	if want == nil {
		before = text(token, what)
	}
	s.holds(t, before)
}

func (s *suite) holds(t *testing.T, want string) {
	t.Helper()
	if got, _, err := s.Read(t.Context()); err != nil || got != want {
		t.Fatalf("the object holds %q, want %q (%v)", got, want, err)
	}
}

func inTurn(t *testing.T, s *suite) {
	for _, c := range []struct {
		number uint64
		want   error
	}{{2, nil}, {2, nil}, {1, fence.ErrStale}, {5, nil}, {4, fence.ErrStale}, {5, nil}, {10, nil}, {9, fence.ErrStale}} {
		s.put(t, fencetest.Orders(c.number), "in turn", c.want)
	}
	var stale *fence.StaleError
	err := s.Put(t.Context(), fencetest.Orders(3), text(fencetest.Orders(3), "late"))
	if !errors.As(err, &stale) || stale.Greatest != 10 || stale.Token != fencetest.Orders(3) || !strings.Contains(err.Error(), "orders/InTurn") {
		t.Errorf("%v", err)
	}
	before := s.wire.sent()
	if err := s.Put(t.Context(), fence.Token{Election: "orders"}, text(fencetest.Orders(10), "none")); !errors.Is(err, fence.ErrNoToken) || s.wire.sent() != before {
		t.Errorf("without a token: %v, and %d requests", err, s.wire.sent()-before)
	}
	for _, bad := range fencetest.NotTokens() {
		if err := s.Put(t.Context(), bad, text(bad, "none")); !errors.Is(err, fence.ErrMalformed) || s.wire.sent() != before {
			t.Errorf("%v: %v, and %d requests", bad, err, s.wire.sent()-before)
		}
	}
}

// An object from before there was a fence takes any token, and has one then.
func beforeTheFence(t *testing.T, s *suite) {
	if err := s.Plain(t.Context(), "old", map[string]string{"team": "a"}); err != nil {
		t.Fatal(err)
	}
	s.put(t, fencetest.Orders(3), "first", nil)
	s.put(t, fencetest.Orders(2), "late", fence.ErrStale)
}

// What is in the metadata and is no token of this election is left alone.
func metadataThatIsNone(t *testing.T, s *suite) {
	for bad, want := range map[string]error{
		"7": fence.ErrMalformed, "orders:": fence.ErrMalformed, "orders:-1": fence.ErrMalformed, "orders:1, orders:2": fence.ErrMalformed,
		"orders:99999999999999999999": fence.ErrMalformed, "users:1": fence.ErrOtherElection, "orders%2Feu:1": fence.ErrOtherElection,
	} {
		if err := s.Plain(t.Context(), "is "+bad, map[string]string{object.TokenName: bad}); err != nil {
			t.Fatal(err)
		}
		s.put(t, fencetest.Orders(9), "over it", want)
		if err := s.Put(t.Context(), fencetest.Orders(9), text(fencetest.Orders(9), "over it")); !strings.Contains(err.Error(), object.TokenName) {
			t.Errorf("it does not name the metadata: %v", err)
		}
	}
}

// The fence's names are the only ones that it takes.
func ownMetadataStays(t *testing.T, s *suite) {
	s.put(t, fencetest.Orders(1), "first", nil)
	_, m, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	low := make(map[string]string)
	for k, v := range m {
		low[strings.ToLower(k)] = v
	}
	if low["team"] != "a" || low[object.TokenName] != "orders:1" || low[object.WriteName] == "" {
		t.Errorf("the metadata is %v", m)
	}
}

// The new leader writes between the old one's look and its write, which is what
// happens to a leader that is stopped there.
func between(t *testing.T, s *suite) {
	meanwhile := func(token fence.Token, what string) {
		s.before(t, func() error { return s.other.Put(t.Context(), token, text(token, what)) })
	}
	meanwhile(fencetest.Orders(2), "new leader") // of an object that there was not
	s.put2(t, fencetest.Orders(1), fence.ErrStale, text(fencetest.Orders(2), "new leader"))
	meanwhile(fencetest.Orders(4), "new leader") // of one that there was
	s.put2(t, fencetest.Orders(3), fence.ErrStale, text(fencetest.Orders(4), "new leader"))
	meanwhile(fencetest.Orders(4), "old leader") // the other way round: the new one looks again, and writes
	s.put2(t, fencetest.Orders(5), nil, text(fencetest.Orders(5), "between"))
	meanwhile(fencetest.Orders(5), "same leader")
	s.put2(t, fencetest.Orders(5), nil, text(fencetest.Orders(5), "between"))
	s.before(t, func() error { return s.other.Plain(t.Context(), "unfenced", nil) })
	s.put2(t, fencetest.Orders(6), nil, text(fencetest.Orders(6), "between"))
}

// before has something done before the next write.
func (s *suite) before(t *testing.T, do func() error) {
	s.wire.beforeWrite(func() {
		if err := do(); err != nil {
			t.Error(err)
		}
	})
}

// put2 writes while something happens in between.
func (s *suite) put2(t *testing.T, token fence.Token, want error, holds string) {
	t.Helper()
	if err := s.Put(t.Context(), token, text(token, "between")); !errors.Is(err, want) {
		t.Fatalf("%v: %v, want %v", token, err, want)
	}
	s.holds(t, holds)
}

func deletedBetween(t *testing.T, s *suite) {
	s.put(t, fencetest.Orders(1), "first", nil)
	s.before(t, func() error { return s.other.Delete(t.Context()) })
	s.put2(t, fencetest.Orders(2), nil, text(fencetest.Orders(2), "between"))
}

// A write whose answer is lost is known again, whether the client repeats it or
// not.
func answerLost(t *testing.T, s *suite) {
	for n := uint64(1); n <= 2; n++ { // an object that there is not, and one that there is
		s.wire.lose(loss{answers: 1})
		s.put(t, fencetest.Orders(n), fmt.Sprint("answer lost ", n), nil)
		if len(s.wire.accepted()) != int(n) {
			t.Errorf("accepted: %v", s.wire.accepted())
		}
	}
}

// The answer is lost, and before anybody asks, another one leads and writes.
func answerLostThenDeposed(t *testing.T, s *suite) {
	s.put(t, fencetest.Orders(1), "first", nil)
	s.wire.lose(loss{answers: 1, then: func() {
		if err := s.other.Put(t.Context(), fencetest.Orders(2), text(fencetest.Orders(2), "new leader")); err != nil {
			t.Error(err)
		}
	}})
	s.put2(t, fencetest.Orders(1), fence.ErrStale, text(fencetest.Orders(2), "new leader"))
}

// A write that never arrives is an error, and no refusal.
func requestLost(t *testing.T, s *suite) {
	s.put(t, fencetest.Orders(1), "first", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var tries atomic.Int64
	s.wire.lose(loss{requests: true, each: func() {
		if tries.Add(1) == 10 {
			cancel() // for a client that never gives up
		}
	}})
	err := s.Put(ctx, fencetest.Orders(1), text(fencetest.Orders(1), "lost"))
	if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "orders/RequestLost") {
		t.Errorf("%v", err)
	}
	s.wire.lose(loss{})
	s.holds(t, text(fencetest.Orders(1), "first"))
}

func ctxEnded(t *testing.T, s *suite) {
	s.put(t, fencetest.Orders(1), "first", nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ended, fencetest.Orders(2), text(fencetest.Orders(2), "second")); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "writing ") || !strings.Contains(err.Error(), "orders/CtxEnded") {
		t.Errorf("%v", err)
	}
	s.holds(t, text(fencetest.Orders(1), "first"))
	ctx, cancel := context.WithCancel(t.Context()) // and in the middle of the write
	defer cancel()
	s.wire.beforeWrite(cancel)
	if err := s.Put(ctx, fencetest.Orders(2), text(fencetest.Orders(2), "second")); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "writing ") || !strings.Contains(err.Error(), "orders/CtxEnded") {
		t.Errorf("%v", err)
	}
}

// Many writers of several leaderships: the server's own order of accepted writes never
// goes back, all are either accepted or refused as stale, and what is there at
// the end is the greatest's.
func atOnce(t *testing.T, s *suite) {
	const writers, rounds = 6, 8
	var wg sync.WaitGroup
	for i := range writers {
		o := s.make(s.wire)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range rounds {
				token := fencetest.Orders(uint64(1 + n + i%3))
				err := o.Put(t.Context(), token, text(token, fmt.Sprint("writer ", i)))
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	greatest, accepted := leaderelection.NoElections, s.wire.accepted()
	for _, a := range accepted {
		token, err := fence.ParseToken(a)
		if err != nil {
			t.Fatal(err)
		}
		if token.Number < greatest {
			t.Fatalf("a write under %d was accepted after one under %d, of %v", token.Number, greatest, accepted)
		}
		greatest = token.Number
	}
	t.Logf("%d accepted of %d", len(accepted), writers*rounds)
	if content, _, err := s.Read(t.Context()); err != nil || !strings.HasSuffix(content, "(orders:10)") {
		t.Errorf("the object holds %q, %v", content, err)
	}
}

// admit is for objects whose fence can be raised without a write.
func admit(t *testing.T, s *suite) {
	a, ok := s.Object.(Raiser)
	if !ok {
		if err := s.Put(t.Context(), fencetest.Orders(1), text(fencetest.Orders(1), "first")); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := a.Raise(t.Context(), fencetest.Orders(1)); err == nil || errors.Is(err, fence.ErrStale) {
		t.Fatalf("of no object: %v", err)
	}
	s.put(t, fencetest.Orders(1), "first", nil)
	for range 2 {
		if err := a.Raise(t.Context(), fencetest.Orders(3)); err != nil {
			t.Fatal(err)
		}
		s.holds(t, text(fencetest.Orders(1), "first"))
	}
	if err := a.Raise(t.Context(), fencetest.Orders(2)); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a smaller one: %v", err)
	}
	s.put(t, fencetest.Orders(2), "late", fence.ErrStale)
	s.put(t, fencetest.Orders(3), "third", nil)
	if _, m, err := s.Read(t.Context()); err != nil || m["team"] == "" && m["Team"] == "" {
		t.Errorf("the metadata is %v, %v", m, err)
	}
	// Raised between the look and the write, it refuses the write.
	s.before(t, func() error { return s.other.(Raiser).Raise(t.Context(), fencetest.Orders(5)) })
	s.put2(t, fencetest.Orders(4), fence.ErrStale, text(fencetest.Orders(3), "third"))
	// And the other way round.
	s.before(t, func() error {
		return s.other.Put(t.Context(), fencetest.Orders(7), text(fencetest.Orders(7), "seventh"))
	})
	if err := a.Raise(t.Context(), fencetest.Orders(6)); !errors.Is(err, fence.ErrStale) {
		t.Errorf("another wrote in between: %v", err)
	}
	s.holds(t, text(fencetest.Orders(7), "seventh"))
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
			if err := o.Put(t.Context(), fencetest.Orders(n), text(fencetest.Orders(n), "true")); err != nil {
				t.Fatal(err)
			}
			if a, ok := o.(Raiser); ok {
				n++
				if err := a.Raise(t.Context(), fencetest.Orders(n)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := o.Put(t.Context(), fencetest.Orders(n-1), text(fencetest.Orders(n-1), "late")); !errors.Is(err, fence.ErrStale) {
			t.Fatal(err) // a look at what is there now, for replays
		}
		before, _, err := s.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for what, about := range map[string]func(*http.Request) bool{"all": nil, "writes": writes, "looks": looks} {
			for which, token := range map[string]fence.Token{"new": fencetest.Orders(n + 1), "old": fencetest.Orders(n - 1)} {
				if what == "looks" && which == "new" {
					continue // whose write may happen
				}
				if b, ok := o.(Blind); ok && what == "looks" && lie.Name == "OldAnswerNewestETag" && b.Blind() != "" {
					continue
				}
				liar.About = about
				liar.Tell(&lie)
				late := lie.Replay && which == "old" // a fence that is beyond it was raised to it, once
				lied(t, o, token, late, lie.Name+", about "+what+", under a token that is "+which)
				liar.Tell(nil)
				s.holds(t, before)
			}
		}
	}
}

// lied writes, and raises the fence. Some clients repeat what was cut off for as long
// as their ctx lasts.
func lied(t *testing.T, o Object, token fence.Token, late bool, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := o.Put(ctx, token, text(token, "lie")); err == nil {
		t.Errorf("%s: it is said to be written", what)
	}
	if a, ok := o.(Raiser); ok {
		if err := a.Raise(ctx, token); err == nil && !late {
			t.Errorf("%s: the fence is said to be raised", what)
		}
	}
}
