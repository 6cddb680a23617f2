package loop_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/loop"
)

const s, m = time.Second, time.Minute

// book is an Outage, and what it has logged but for what is for debugging.
type book struct {
	*loop.Outage
	lines []string
}

func newBook() *book {
	b := &book{}
	b.Outage = &loop.Outage{Over: "over", To: func(level slog.Level, msg string, args ...any) {
		if level > slog.LevelDebug {
			b.lines = append(b.lines, fmt.Sprint(level, " ", msg, " ", args))
		}
	}}
	return b
}

func (b *book) fails(at time.Duration) { b.Failed(at, "read", "failed to read", "err", "none") }

// logged fails unless these lines were logged since the last call.
func (b *book) logged(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(b.lines, want) {
		t.Errorf("logged %q, want %q", b.lines, want)
	}
	b.lines = nil
}

// works fails unless a success ends an outage, or does not.
func (b *book) works(t *testing.T, at time.Duration, kind string, over bool) {
	t.Helper()
	if b.Worked(at, kind) != over {
		t.Errorf("%s at %v: over %v", kind, at, !over)
	}
}

// The first line has no number, and the others count from the first failure on.
func TestLinesCount(t *testing.T) {
	b := newBook()
	b.works(t, 9*s, "read", false)
	b.fails(10 * s)
	b.logged(t, "WARN failed to read [err none]")
	b.fails(20 * s)
	b.fails(70*s - 1)
	b.logged(t)
	b.fails(70 * s)
	b.logged(t, "WARN failed to read [err none failed 4 for 1m0s]")
	b.works(t, 80*s, "read", true)
	b.logged(t, "INFO over [after 1m10s failed 4]")
	b.works(t, 81*s, "read", false)
	b.logged(t)
}

// Short outages that begin within a minute of the last line are one for the log. They are over
// silently, and counted by the next line. After a minute without any the count begins again.
func TestShortOutagesAreOne(t *testing.T) {
	b := newBook()
	b.fails(70 * s)
	b.fails(75 * s)
	b.works(t, 80*s, "read", true)
	b.lines = nil
	for at := 85 * s; at < 130*s; at += 15 * s {
		b.fails(at)
		b.works(t, at+s, "read", true)
	}
	b.logged(t)
	b.fails(130 * s)
	b.logged(t, "WARN failed to read [err none failed 4 for 45s]")
	b.works(t, 131*s, "read", true)
	b.logged(t, "INFO over [after 46s failed 4]")
	b.fails(135 * s)
	b.works(t, 136*s, "read", true)
	b.logged(t)
	b.fails(10 * m)
	b.logged(t, "WARN failed to read [err none]")
}

// A reason that comes when the outage is over begins none. It is no failure either.
func TestExplain(t *testing.T) {
	b := newBook()
	b.fails(s)
	b.Explain(2*s, "here is why")
	b.logged(t, "WARN failed to read [err none]", "WARN here is why []")
	b.works(t, 3*s, "read", true)
	b.logged(t, "INFO over [after 2s failed 1]")
	b.Explain(5*m, "here is why")
	b.logged(t, "WARN here is why []")
	b.fails(5*m + s)
	b.works(t, 5*m+2*s, "read", true)
	b.logged(t)
}

// An outage is over when all that has failed in the last minute has worked since.
func TestEachKindMustWork(t *testing.T) {
	b := newBook()
	b.fails(10 * s)
	b.Failed(20*s, "write", "failed to write")
	b.logged(t, "WARN failed to read [err none]", "WARN failed to write [failed 2 for 10s]")
	b.works(t, 30*s, "read", false)
	b.works(t, 80*s-1, "read", false)
	b.logged(t)
	b.works(t, 80*s, "read", true)
	b.logged(t, "INFO over [after 1m10s failed 2]")
	b.fails(90 * s)
	b.works(t, 91*s, "read", true) // the writes are not waited for again
}

// With Once an outage has one line of a kind, however long it is.
func TestOnce(t *testing.T) {
	b := newBook()
	b.Once = true
	b.fails(10 * s)
	b.logged(t, "WARN failed to read [err none]")
	b.fails(20 * m)
	b.logged(t)
	b.works(t, 21*m, "read", true)
	b.logged(t, "INFO over [after 20m50s failed 2]")
	b.fails(22 * m)
	b.logged(t, "WARN failed to read [err none]")
}
