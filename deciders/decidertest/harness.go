package decidertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// harness is what one check works with: a test, a fresh election, and verbs that
// fail the test where the store does not do as it must.
type harness struct {
	testing.TB
	Options
	newElection func(t testing.TB) func() leaderelection.RaceDecider
	handle      func() leaderelection.RaceDecider // on this check's election
	base        time.Time                         // what the expiries of states count from
}

func newHarness(t testing.TB, o Options, newElection func(t testing.TB) func() leaderelection.RaceDecider) *harness {
	return &harness{
		TB:          t,
		Options:     o,
		newElection: newElection,
		handle:      newElection(t),
		base:        time.Now().UTC().Truncate(time.Second).Add(time.Hour + 123456789),
	}
}

// soon returns a context that lasts as long as the suite's patience.
func (h *harness) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(h.Context(), h.Patience)
}

// within runs f in a goroutine of its own, and fails the test if f has not
// returned when the patience is at its end.
func (h *harness) within(what string, f func()) {
	h.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	h.await(what, done)
}

// await fails the test if done is not closed before the patience ends.
func (h *harness) await(what string, done <-chan struct{}) {
	h.Helper()
	ctx, cancel := h.soon()
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		h.Fatalf("%s: not done after %v", what, h.Patience)
	}
}

// state is a record that fills every field, each with what follows from the
// number and the extension: so a mixture of two records is told from either.
func (h *harness) state(number, extension uint64) *leaderelection.RaceEntry {
	id := fmt.Sprintf("candidate-%d", number)
	return &leaderelection.RaceEntry{
		LeaderID:         id,
		HostPort:         []string{fmt.Sprintf("10.0.0.1:%d", number), fmt.Sprintf("[fd00::1]:%d", extension)},
		ConnectionParams: fmt.Appendf(nil, "\x00\xff %d %d", number, extension),
		TermExpiry:       h.base.Add(time.Duration(number%1000)*time.Minute + time.Duration(extension%1000)*time.Second),
		TermLength:       15*time.Second + time.Duration(number%1000),
		ElectionNumber:   leaderelection.ElectionNumber(number),
		Extension:        extension,
		Incarnation:      fmt.Sprintf("incarnation-%d", number),
		WriteID:          fmt.Sprintf("write-%d-%d", number, extension),
		Successor:        fmt.Sprintf("successor-%d-%d", number, extension),
		Hold:             time.Hour + time.Duration(extension%1000),
		Priority:         int(number%1000) - 500,
	}
}

// with returns a copy of e that is to be written with token.
func with(token leaderelection.LeaderToken, e *leaderelection.RaceEntry) *leaderelection.RaceEntry {
	c := e.Clone()
	c.Token = token
	return c
}

// read reads once, and fails the test if that does not work.
func (h *harness) read(d leaderelection.RaceDecider) *leaderelection.RaceEntry {
	h.Helper()
	ctx, cancel := h.soon()
	defer cancel()
	e, err := d.ReadCurrent(ctx)
	if err != nil {
		h.Fatalf("ReadCurrent: %v", err)
	}
	h.whole("ReadCurrent", e)
	return e
}

// whole fails the test if e is not what every entry from a store must be.
func (h *harness) whole(what string, e *leaderelection.RaceEntry) {
	h.Helper()
	if e == nil {
		h.Fatalf("%s returned nil without an error; an empty election is a vacant entry", what)
	}
	if e.Token == nil {
		h.Fatalf("%s returned an entry without a Token: %s", what, show(e))
	}
}

// readBack reads until it sees want or something newer, and fails the test if
// that is not want. It returns what it read.
func (h *harness) readBack(d leaderelection.RaceDecider, want *leaderelection.RaceEntry) *leaderelection.RaceEntry {
	h.Helper()
	e := h.readSince(d, want)
	h.same("read back", e, want)
	return e
}

// readSince reads until it sees want or something newer, since reads may be
// stale.
func (h *harness) readSince(d leaderelection.RaceDecider, want *leaderelection.RaceEntry) *leaderelection.RaceEntry {
	h.Helper()
	ctx, cancel := h.soon()
	defer cancel()
	for pause := time.Millisecond; ; pause *= 2 {
		e := h.read(d)
		if e.Compare(want) >= 0 {
			return e
		}
		next := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			h.Fatalf("after %v ReadCurrent still returns an older record\ngot  %s\nwant %s", h.Patience, show(e), show(want))
		case <-next.C: // asking a stale replica again at once would only load it
		}
	}
}

// write writes e with token, and fails the test if that does not work.
func (h *harness) write(d leaderelection.RaceDecider, token leaderelection.LeaderToken, e *leaderelection.RaceEntry) leaderelection.LeaderToken {
	h.Helper()
	ctx, cancel := h.soon()
	defer cancel()
	next, err := d.WriteEntry(ctx, with(token, e))
	if err != nil {
		h.Fatalf("WriteEntry with the stored version's token: %v\nentry %s", err, show(e))
	}
	h.isNew(token, next)
	return next
}

// isNew fails the test if the token that a write has returned is none, or the one
// that was written over.
func (h *harness) isNew(old, next leaderelection.LeaderToken) {
	h.Helper()
	switch {
	case next == nil:
		h.Fatalf("WriteEntry returned neither a token nor an error")
	case old != nil && reflect.TypeOf(next).Comparable() && next == old:
		h.Fatalf("WriteEntry returned the token %v of the version that it replaced", next)
	}
}

// loses writes e with a token that is not the stored version's, and fails the
// test where that is not refused as a lost race.
func (h *harness) loses(why string, d leaderelection.RaceDecider, token leaderelection.LeaderToken, e *leaderelection.RaceEntry) error {
	h.Helper()
	ctx, cancel := h.soon()
	defer cancel()
	next, err := d.WriteEntry(ctx, with(token, e))
	switch {
	case err == nil:
		h.Fatalf("WriteEntry succeeded %s; it must lose with ErrLostRace", why)
	case !errors.Is(err, leaderelection.ErrLostRace):
		h.Fatalf("WriteEntry %s: %v\nwhich does not wrap ErrLostRace", why, err)
	case errors.Is(err, leaderelection.ErrPermanent):
		h.Errorf("a lost race wraps ErrPermanent: %v", err)
	case next != nil:
		h.Errorf("a token is returned along with the error %v", err)
	}
	return err
}

// same fails the test if got is not want, Token aside.
func (h *harness) same(what string, got, want *leaderelection.RaceEntry) {
	h.Helper()
	if d := differ(got, want); d != "" {
		h.Fatalf("%s: %s\ngot  %s\nwant %s", what, d, show(got), show(want))
	}
}

// differ names the first field in which two entries differ, Token aside. Slices
// of length zero are the same, nil or not.
func differ(got, want *leaderelection.RaceEntry) string {
	for _, f := range []struct {
		what string
		same bool
	}{
		{"another LeaderID", got.LeaderID == want.LeaderID},
		{"another HostPort", slices.Equal(got.HostPort, want.HostPort)},
		{"other ConnectionParams", bytes.Equal(got.ConnectionParams, want.ConnectionParams)},
		{fmt.Sprintf("TermExpiry is off by %v", got.TermExpiry.Sub(want.TermExpiry)), got.TermExpiry.Equal(want.TermExpiry)},
		{"another TermLength", got.TermLength == want.TermLength},
		{"another ElectionNumber", got.ElectionNumber == want.ElectionNumber},
		{"another Extension", got.Extension == want.Extension},
		{"another Hold", got.Hold == want.Hold},
		{"another Priority", got.Priority == want.Priority},
		{"another Incarnation", got.Incarnation == want.Incarnation},
		{"another WriteID", got.WriteID == want.WriteID},
		{"another Successor", got.Successor == want.Successor},
		{"another Unsynchronized", got.Unsynchronized == want.Unsynchronized},
		{"another Extra", maps.Equal(got.Extra, want.Extra)},
	} {
		if !f.same {
			return f.what
		}
	}
	return ""
}

// show prints an entry on one line, without what a Token holds.
func show(e *leaderelection.RaceEntry) string {
	if e == nil {
		return "nil"
	}
	params := e.ConnectionParams
	more := ""
	if len(params) > 32 {
		params, more = params[:32], fmt.Sprintf("... (%d bytes)", len(e.ConnectionParams))
	}
	return fmt.Sprintf("{LeaderID:%q HostPort:%q ConnectionParams:%q%s TermExpiry:%s TermLength:%v ElectionNumber:%d Extension:%d Incarnation:%q WriteID:%q Successor:%q Unsynchronized:%t}",
		e.LeaderID, e.HostPort, params, more, e.TermExpiry.Format(time.RFC3339Nano), e.TermLength, e.ElectionNumber, e.Extension, e.Incarnation, e.WriteID, e.Successor, e.Unsynchronized)
}

// scribble changes everything that the caller of a decider owns.
func scribble(e *leaderelection.RaceEntry) {
	for i := range e.HostPort {
		e.HostPort[i] = "scribbled"
	}
	for i := range e.ConnectionParams {
		e.ConnectionParams[i] = '#'
	}
	token := e.Token
	*e = leaderelection.RaceEntry{LeaderID: "scribbled", HostPort: e.HostPort[:0], ConnectionParams: e.ConnectionParams[:0], Token: token}
}
