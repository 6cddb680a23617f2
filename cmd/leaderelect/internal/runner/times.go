// Package runner is what a leader does that runs a command: it starts the command
// with what it needs to know, keeps telling its guard until when it may live, and
// decides what happens when it ends.
package runner

import (
	"fmt"
	"time"
)

// Times are the moments at which a command is asked to end, and killed, as spans
// before the end of a view.
type Times struct {
	// Span is the longest a view lasts without an extension: TermLength less
	// MaxClockSkew.
	Span time.Duration
	// Margin is what lies between killing a command and the view's end: the
	// time in which it has to be dead.
	Margin time.Duration
	// Grace is what lies between asking a command to end and killing it.
	Grace time.Duration
}

// Extend is how often the lease is extended if nothing else is asked for: after half of what a
// command has of a view until it is asked to end. After half of the view itself an outage of
// some seconds would end commands that the lease outlives. The grace leaves it more than a seventh
// of a term, so that it is within what a Config takes.
func (t Times) Extend() time.Duration { return (t.Span - t.Grace - t.Margin) / 2 }

// TimesFor returns the times for an election. A zero grace means a quarter of the
// span, 10 s at most. A grace that leaves an extension less than an eighth of the
// span to be confirmed in is refused: commands would be ended by every hiccup of
// the store.
func TimesFor(term, skew, grace time.Duration) (Times, error) {
	span := term - skew
	t := Times{Span: span, Margin: min(max(span/16, 50*time.Millisecond), time.Second), Grace: grace}
	most := span*3/8 - t.Margin
	if grace == 0 {
		t.Grace = min(span/4, 10*time.Second, most)
	}
	switch {
	case most <= 0:
		return t, fmt.Errorf("--term %v with a skew of %v is too short to run a command in: take a term of %v at least", term, skew, (skew + 200*time.Millisecond).Round(time.Millisecond))
	case grace < 0:
		return t, fmt.Errorf("--grace is %v, must not be negative", grace)
	case grace > most:
		need := skew + (grace+time.Second)*8/3
		return t, fmt.Errorf("--grace %v does not fit into --term %v with a skew of %v: a command that is to be dead when the view ends has %v at most; take that, or a --term of %v",
			grace, term, skew, most.Round(time.Millisecond), need.Round(time.Second))
	}
	return t, nil
}
