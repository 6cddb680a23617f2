package decidertest

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
)

var writeChecks = []check{
	{"NilTokenCreates", func(h *harness) {
		h.write(h.handle(), nil, h.state(1, 0))
		h.readBack(h.handle(), h.state(1, 0))
	}},
	{"NilTokenCreatesOnly", func(h *harness) {
		d := h.handle()
		token := h.write(d, nil, h.state(1, 0))
		h.loses("with a nil Token, when there was a record", h.handle(), nil, h.state(2, 0))
		h.readBack(d, h.state(1, 0))

		vacant := &leaderelection.RaceEntry{ElectionNumber: 1, Extension: 1}
		h.write(d, token, vacant)
		h.loses("with a nil Token, when there was a vacant record", h.handle(), nil, h.state(3, 0))
		h.readBack(d, vacant)
	}},
	// A leader extends its term without reading in between.
	{"ReturnedTokenIsUsableNext", func(h *harness) {
		one, two := h.handle(), h.handle()
		token := h.write(one, nil, h.state(1, 0))
		for i := range uint64(6) {
			if i%2 == 0 {
				one, two = two, one // a token is good on every handle
			}
			token = h.write(one, token, h.state(1, i+1))
		}
		h.readBack(two, h.state(1, 6))
	}},
	{"StaleTokenLosesAndLeavesNoTrace", func(h *harness) {
		one, two := h.handle(), h.handle()
		old := h.write(one, nil, h.state(1, 0))
		read := h.readBack(two, h.state(1, 0)).Token
		h.write(one, old, h.state(1, 1))
		for what, token := range map[string]leaderelection.LeaderToken{"returned by a write": old, "of a read": read} {
			h.loses("with a stale token "+what, one, token, h.state(9, 9))
			h.loses("with a stale token "+what, two, token, h.state(9, 9))
		}
		h.readBack(one, h.state(1, 1))
		e := h.readBack(two, h.state(1, 1))
		h.write(two, e.Token, h.state(2, 0)) // a loser may read, and try again
		h.readBack(one, h.state(2, 0))
	}},
	{"LostRaceErrorsCurrentIsTrue", func(h *harness) {
		d := h.handle()
		old := h.write(d, nil, h.state(1, 0))
		h.write(d, old, h.state(2, 0))
		for what, token := range map[string]leaderelection.LeaderToken{"a stale token": old, "a nil Token": nil} {
			err := h.loses("with "+what, d, token, h.state(9, 9))
			var lost *leaderelection.LostRaceError
			if !errors.As(err, &lost) {
				h.Logf("%s: the store says no more than %v", what, err)
				continue
			}
			if lost.Place == "" {
				h.Errorf("%s: LostRaceError.Place is empty: %v", what, err)
			}
			if lost.Current == nil {
				continue
			}
			h.whole("LostRaceError.Current", lost.Current)
			h.same("LostRaceError.Current", lost.Current, h.state(2, 0))
			scribble(lost.Current)
			h.readBack(d, h.state(2, 0))
		}
		err := h.loses("with a stale token", d, old, h.state(9, 9))
		var lost *leaderelection.LostRaceError
		if errors.As(err, &lost) && lost.Current != nil {
			h.write(d, lost.Current.Token, h.state(3, 0)) // which saves the loser a read
			h.readBack(d, h.state(3, 0))
		}
	}},
	// What differs in Extension alone is another version.
	{"ExtensionAloneMakesAVersion", func(h *harness) {
		d := h.handle()
		e := h.state(1, 0)
		first := h.write(d, nil, e)
		e.Extension = 1
		h.write(d, first, e)
		h.loses("with the token of a version that differs in Extension alone", d, first, h.state(9, 9))
		h.readBack(d, e)
	}},
	// A record that is as it was before, but for its Extension, does not bring the
	// old token back to life.
	{"NoABA", func(h *harness) {
		d := h.handle()
		a := h.state(1, 0)
		first := h.write(d, nil, a)
		b := h.state(1, 1)
		b.LeaderID = "b"
		second := h.write(d, first, b)
		a.Extension = 2
		h.write(d, second, a)
		h.loses("with the token of the first of three versions, the third like it but for Extension", d, first, h.state(9, 9))
		h.loses("with the token of the second of three versions", d, second, h.state(9, 9))
		h.readBack(d, a)
	}},
	// A counter of eight bits comes back to where it was.
	{"VersionsDoNotRepeat", func(h *harness) {
		const writes = 256
		d := h.handle()
		first := h.write(d, nil, h.state(1, 0))
		second := h.write(d, first, h.state(1, 1))
		next := second
		for i := uint64(2); i <= writes+1; i++ {
			next = h.write(d, next, h.state(1, i))
			if i&(i-1) == 0 { // also after 2, 4, 8 and so on
				h.loses(fmt.Sprintf("with the token of the version %d writes ago", i), d, first, h.state(9, 9))
			}
		}
		h.loses(fmt.Sprintf("with the token of the version %d writes ago", writes), d, second, h.state(9, 9))
		h.readBack(d, h.state(1, writes+1))
	}},
	// What a leader tells its clients may be long. A record is kept whole, or refused.
	{"LargeRecord", func(h *harness) {
		d := h.handle()
		token := h.write(d, nil, h.large(1, 0))
		h.readBack(h.handle(), h.large(1, 0))
		token = h.write(d, token, h.large(1, 1)) // which differs in little
		h.readBack(h.handle(), h.large(1, 1))
		h.write(d, token, h.state(1, 2)) // nothing is left of the longer one
		h.readBack(h.handle(), h.state(1, 2))
	}},
	{"EntryIsNotChanged", func(h *harness) {
		d := h.handle()
		ctx, cancel := h.soon()
		defer cancel()
		try := func(what string, token leaderelection.LeaderToken, e *leaderelection.RaceEntry) leaderelection.LeaderToken {
			mine := with(token, e)
			mine.HostPort = append(make([]string, 0, 8), mine.HostPort...) // with room to write into
			next, _ := d.WriteEntry(ctx, mine)
			if d := differ(mine, e); d != "" || mine.Token != token {
				h.Errorf("%s write changed its entry (%s)\ngot  %s\nwant %s", what, d, show(mine), show(e))
			}
			if room := mine.HostPort[:8]; room[7] != "" {
				h.Errorf("%s write wrote %q behind HostPort", what, room[7])
			}
			return next
		}
		e := h.state(1, 0)
		e.TermExpiry = time.Now().In(time.FixedZone("elsewhere", 3600)) // with a monotonic reading
		token := try("a creating", nil, e)
		try("a losing", nil, h.state(2, 0))
		try("an updating", token, h.state(1, 1))
		try("a losing", token, h.state(2, 0))
		h.readBack(d, h.state(1, 1))
	}},
	{"EntryIsNotKept", func(h *harness) {
		d := h.handle()
		var token leaderelection.LeaderToken
		for i := range uint64(2) {
			mine := with(token, h.state(1, i))
			ctx, cancel := h.soon()
			next, err := d.WriteEntry(ctx, mine)
			cancel()
			if err != nil {
				h.Fatalf("WriteEntry: %v", err)
			}
			scribble(mine)
			h.readBack(d, h.state(1, i))
			token = next
		}
	}},
	// Each decider accepts only its own type of token.
	{"ForeignTokenIsRefused", func(h *harness) {
		d := h.handle()
		try := func(when string) {
			ctx, cancel := h.soon()
			defer cancel()
			var err error
			func() {
				defer func() {
					if p := recover(); p != nil {
						err = fmt.Errorf("panic: %v", p)
						h.Errorf("WriteEntry with a token of another type, %s, panics: %v", when, p)
					}
				}()
				_, err = d.WriteEntry(ctx, with(alien{}, h.state(9, 9)))
			}()
			if err == nil {
				h.Errorf("WriteEntry accepted a token of another type, %s", when)
			}
		}
		try("in an empty election")
		h.same("after a refused write", h.read(d), &leaderelection.RaceEntry{})
		h.write(d, nil, h.state(1, 0))
		try("when there was a record")
		h.readBack(d, h.state(1, 0))
	}},
}

// large is a record of some 128 KiB, as stores keep it.
func (h *harness) large(number, extension uint64) *leaderelection.RaceEntry {
	e := h.state(number, extension)
	e.ConnectionParams = bytes.Repeat(append(everyByte(), e.ConnectionParams...), 96<<10/256)[:96<<10]
	return e
}

// alien is a LeaderToken that no decider has made.
type alien struct{}

func (alien) CommitTS() time.Time { return time.Time{} }
