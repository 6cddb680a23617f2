package decidertest

import (
	"testing"

	"github.com/c8e606e4/leaderelection"
)

// Bench measures what a campaign does all day: Read is one ReadCurrent, Write is
// one WriteEntry that extends a term, and WriteToNotify is the time from the
// beginning of a WriteEntry until a feed on another handle has told of it; it is
// skipped if the handles are not a leaderelection.ChangeFeed. NewElection is as
// for Run.
func Bench(b *testing.B, newElection func(t testing.TB) func() leaderelection.RaceDecider) {
	b.Helper()
	b.Run("Read", func(b *testing.B) {
		h := newHarness(b, Options{}.withDefaults(), newElection)
		d := h.handle()
		h.write(d, nil, h.state(1, 0))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.ReadCurrent(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Write", func(b *testing.B) {
		h := newHarness(b, Options{}.withDefaults(), newElection)
		extend := h.extender(b, h.handle())
		b.ReportAllocs()
		for b.Loop() {
			extend()
		}
	})
	b.Run("WriteToNotify", func(b *testing.B) {
		h := newHarness(b, Options{}.withDefaults(), newElection)
		extend := h.extender(b, h.handle())
		f := h.follow(h.handle())
		f.next()
		b.ReportAllocs()
		for b.Loop() {
			f.until(extend())
		}
		f.stop()
	})
}

// extender creates the record and returns what extends its term.
func (h *harness) extender(b *testing.B, d leaderelection.RaceDecider) func() *leaderelection.RaceEntry {
	e := h.state(1, 0)
	e.Token = h.write(d, nil, e)
	return func() *leaderelection.RaceEntry {
		e.Extension++
		token, err := d.WriteEntry(b.Context(), e)
		if err != nil {
			b.Fatal(err)
		}
		e.Token = token
		return e
	}
}
