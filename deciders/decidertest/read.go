package decidertest

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

var readChecks = []check{
	// If nothing has been written yet: a vacant entry, never nil.
	{"EmptyElectionIsVacant", func(h *harness) {
		for range 2 {
			h.same("an empty election", h.read(h.handle()), &leaderelection.RaceEntry{})
		}
		h.write(h.handle(), nil, h.state(1, 0)) // reading has made no record
	}},
	{"EmptyElectionsTokenCreates", func(h *harness) {
		d := h.handle()
		e := h.read(d)
		h.write(d, e.Token, h.state(1, 0))
		h.readBack(h.handle(), h.state(1, 0))
	}},
	// The Token for creating is void once there is a record.
	{"EmptyElectionsTokenCreatesOnce", func(h *harness) {
		one, two := h.handle(), h.handle()
		first, second := h.read(one), h.read(two)
		h.write(one, first.Token, h.state(1, 0))
		h.loses("with the token of the empty election, when there was a record", two, second.Token, h.state(2, 0))
		h.loses("with the token of the empty election a second time", one, first.Token, h.state(3, 0))
		h.readBack(two, h.state(1, 0))
	}},
	{"EveryFieldIsReadBack", func(h *harness) {
		writer, reader := h.handle(), h.handle()
		var token leaderelection.LeaderToken
		for i, change := range []func(e *leaderelection.RaceEntry){
			func(e *leaderelection.RaceEntry) {},
			func(e *leaderelection.RaceEntry) { e.Successor = "" },
			func(e *leaderelection.RaceEntry) { e.Successor = leaderelection.AnySuccessor },
			func(e *leaderelection.RaceEntry) { e.Unsynchronized = true },
			func(e *leaderelection.RaceEntry) { e.HostPort = nil },
			func(e *leaderelection.RaceEntry) { e.HostPort = []string{} },
			func(e *leaderelection.RaceEntry) { e.HostPort = []string{"a:1", "b:2", "[fd00::1]:3", "d.example:4"} },
			func(e *leaderelection.RaceEntry) { e.ConnectionParams = nil },
			func(e *leaderelection.RaceEntry) { e.ConnectionParams = []byte{} },
			func(e *leaderelection.RaceEntry) { e.ConnectionParams = everyByte() },
			func(e *leaderelection.RaceEntry) { e.ConnectionParams = bytes.Repeat(everyByte(), 16) }, // 4 KiB
			func(e *leaderelection.RaceEntry) { e.LeaderID, e.Incarnation, e.Successor = odd, odd+"i", odd+"s" },
			func(e *leaderelection.RaceEntry) { e.LeaderID = strings.Repeat("ä", 500) },
			func(e *leaderelection.RaceEntry) { // blanks and empty texts stay
				e.LeaderID, e.Incarnation, e.Successor = " a\t", "\n i", "s  "
				e.HostPort, e.ConnectionParams = []string{" a:1 ", "", "b:2\n"}, []byte(" \x00 params \n\x00")
			},
			func(e *leaderelection.RaceEntry) { e.LeaderID, e.ConnectionParams = " ", []byte(" ") },
			func(e *leaderelection.RaceEntry) { e.TermExpiry = time.Time{} },
			func(e *leaderelection.RaceEntry) { e.TermExpiry = time.Now() },
			func(e *leaderelection.RaceEntry) { e.TermExpiry = e.TermExpiry.In(time.FixedZone("elsewhere", -5400)) },
			func(e *leaderelection.RaceEntry) {
				e.TermExpiry = time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC)
			},
			func(e *leaderelection.RaceEntry) {
				e.TermExpiry = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
			},
			func(e *leaderelection.RaceEntry) { e.TermLength = 0 },
			func(e *leaderelection.RaceEntry) { e.TermLength = 1 },
			func(e *leaderelection.RaceEntry) { e.TermLength = math.MaxInt64 },
			func(e *leaderelection.RaceEntry) { e.Incarnation = "" },
			func(e *leaderelection.RaceEntry) { *e = leaderelection.RaceEntry{ElectionNumber: e.ElectionNumber} },
			func(e *leaderelection.RaceEntry) { e.ElectionNumber, e.Extension = 1<<53+1, 1<<53+3 }, // no float64 has these
			func(e *leaderelection.RaceEntry) { // fields of a newer version
				e.Extra = map[string]string{"colour": `{"of":["a",null,1e3]}`, "zone": `"é"`}
			},
			func(e *leaderelection.RaceEntry) { // the last: a stale read of it would be newer than any other
				e.ElectionNumber, e.Extension = leaderelection.MaxElectionNumber, math.MaxInt64
			},
		} {
			e := h.state(uint64(i+1), uint64(i))
			change(e)
			token = h.write(writer, token, e)
			h.readBack(reader, e)
		}
	}},
	// A released record stays: it holds the fencing token's count.
	{"ReleaseKeepsTheNumber", func(h *harness) {
		d := h.handle()
		token := h.write(d, nil, h.state(7, 3))
		vacant := &leaderelection.RaceEntry{TermExpiry: h.base, TermLength: time.Second, ElectionNumber: 7, Extension: 4, Incarnation: "who released it"}
		h.write(d, token, vacant)
		e := h.readBack(h.handle(), vacant)
		h.write(h.handle(), e.Token, h.state(8, 0))
		h.readBack(d, h.state(8, 0))
	}},
	{"TokenIsOfTheVersionRead", func(h *harness) {
		one, two := h.handle(), h.handle()
		h.write(one, nil, h.state(1, 0))
		for i := range uint64(5) {
			e := h.readBack(one, h.state(1, i))
			one, two = two, one // a token is good on every handle
			h.write(one, e.Token, h.state(1, i+1))
		}
	}},
	{"EntryBelongsToCaller", func(h *harness) {
		d := h.handle()
		scribble(h.read(d))
		h.write(d, nil, h.state(1, 0))
		e := h.readBack(d, h.state(1, 0))
		scribble(e)
		again := h.readBack(d, h.state(1, 0))
		h.write(d, e.Token, h.state(1, 1))
		h.same("an entry that was read before the record changed", again, h.state(1, 0))
	}},
	// Each reader sees one of the states, whole.
	{"ManyReadersAtOnce", func(h *harness) {
		writer := h.handle()
		token := h.write(writer, nil, h.state(1, 0))
		readers := []leaderelection.RaceDecider{writer, h.handle()}
		ctx, cancel := h.soon()
		defer cancel()
		errs := make(chan error, h.Writers)
		var wg sync.WaitGroup
		for i := range h.Writers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range h.Rounds {
					e, err := readers[i%len(readers)].ReadCurrent(ctx)
					if err == nil {
						err = h.isState(e)
					}
					if err != nil {
						errs <- err
						return
					}
				}
			}()
		}
		for i := range uint64(h.Rounds) {
			token = h.write(writer, token, h.state(1+(i+1)/3, (i+1)%3))
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			h.Error(err)
		}
	}},
	{"CommitTSIsNearNowOrZero", func(h *harness) {
		d := h.handle()
		h.read(d).Token.CommitTS() // the empty election's; any time will do
		token := h.write(d, nil, h.state(1, 0))
		read := h.readBack(d, h.state(1, 0)).Token
		for what, ts := range map[string]time.Time{"token written": token.CommitTS(), "token read": read.CommitTS()} {
			if off := time.Since(ts); !ts.IsZero() && off.Abs() > minutes {
				h.Errorf("%s: CommitTS is %v, %v from now; want about now, or the zero time", what, ts, off)
			}
		}
		before := token.CommitTS()
		h.write(d, token, h.state(1, 1))
		if after := token.CommitTS(); !after.Equal(before) {
			h.Errorf("a token is immutable, and its CommitTS changed from %v to %v", before, after)
		}
	}},
	{"ElectionsAreApart", func(h *harness) {
		one, two := h.handle(), h.newElection(h.TB)()
		token := h.write(one, nil, h.state(5, 5))
		h.same("another election, still empty", h.read(two), &leaderelection.RaceEntry{})
		other := h.write(two, nil, h.state(1, 0))
		h.readBack(one, h.state(5, 5))
		h.write(one, token, h.state(5, 6))
		h.write(two, other, h.state(1, 1))
		h.readBack(one, h.state(5, 6))
		h.readBack(two, h.state(1, 1))
	}},
}

// odd is text that has gone wrong in some store or other.
const odd = "Zoë \"<&>'\\/ 選挙 🗳 \u2028\t{}[]:;,*?%00 ../x#"

func everyByte() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// isState says what keeps e from being a state that was written as a whole.
func (h *harness) isState(e *leaderelection.RaceEntry) error {
	switch {
	case e == nil:
		return fmt.Errorf("nil without an error")
	case e.Token == nil:
		return fmt.Errorf("an entry without a Token: %s", show(e))
	}
	if d := differ(e, h.state(uint64(e.ElectionNumber), e.Extension)); d != "" {
		return fmt.Errorf("no record that was ever written: %s: %s", d, show(e))
	}
	return nil
}

// minutes is how far a store's clock may be from the test's.
const minutes = 15 * time.Minute
