package plan

import (
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Warnings are what is bad about a choice, worst first.
func (c Choice) Warnings() (all []string) {
	warn := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	s, extend := &c.Store, c.Extend()
	switch shared := c.Clocks == leaderelection.SharedClock; {
	case s.OneMachine && !shared:
		warn("all candidates of a %s store share one clock: --clocks shared shortens every fail-over by %v and more", s.Name, c.Skew)
	case shared && !s.OneMachine:
		warn("--clocks shared is for candidates on one machine: two machines' clocks are never that equal, and two leaders would be possible; a skew of 1s is ample with NTP, 100ms for most clouds' own time service")
	case c.Skew < 50*time.Millisecond && !s.OneMachine && c.Clocks != leaderelection.Unsynchronized:
		warn("a skew of %v is less than most machines' clocks can promise: see chronyc tracking", c.Skew)
	}
	if c.Term/4 < 5*s.Latency {
		warn("a store call is given up after a quarter of the term, %v, and %s takes about %v: slow answers will cost leaderships; take a term of %v at least",
			c.Term/4, s.Name, s.Latency, (20 * s.Latency).Round(100*time.Millisecond))
	}
	if s.Fastest > 0 && extend < 3*s.Fastest/2 {
		warn("an extension each %v is near what %s allows for one record, a write each %v: take a term of %v at least", extend, s.Name, s.Fastest, 3*s.Fastest+c.Skew)
	}
	if c.Skew > c.Term/4 {
		warn("the skew is more than a quarter of the term: each view is short (%v), and each fail-over waits for the skew more than once", c.Term-c.Skew)
	}
	if c.Term > time.Minute {
		warn("a term of %v: after a crash nobody leads for %v, as a rule", c.Term, c.crash().Median.Round(time.Second))
	}
	if c.Poll > 0 && c.Poll < c.Term/10 && !s.Pushes {
		warn("polling each %v costs %.0f reads a month; the fail-over after a crash does not depend on it, only a hand-over does", c.Poll, c.Work().Reads)
	}
	return all
}
