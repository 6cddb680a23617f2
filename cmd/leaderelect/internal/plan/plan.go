// Package plan says what a choice of term, skew and store means, by the formulas
// that follow from the rules of the election. Its tests hold them against the real
// campaign in virtual time.
package plan

import (
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Choice is what is planned.
type Choice struct {
	Term, Skew time.Duration
	Poll       time.Duration              // zero: half a term
	Every      time.Duration              // between extensions; zero: half of the term less the skew
	Before     time.Duration              // how long before the view's end the leader begins to end; zero: it does not
	Clocks     leaderelection.ClockPolicy // with SharedClock, Skew is zero
	Candidates int                        // those that only follow the election count like standbys
	Store      Store
}

// Span is a time that depends on chance: when a leader dies, how far clocks are off.
type Span struct {
	Min    time.Duration
	Median time.Duration // with clocks that are right
	Max    time.Duration
}

// Result is what a choice means. Requests are taken to need Store.Latency each.
type Result struct {
	// Crash is how long nobody leads after the leader's machine has died, or its process
	// without a lifeline.
	Crash Span
	// Standby is how long nobody leads after the process of a leader with a lifeline has died, if a
	// standby is on that machine or the process itself is started again, not counting its start.
	Standby Span
	// HandOver is how long nobody leads after a leader has given up by choice.
	HandOver Span
	// Silent and Refused are the longest outages of the store that no leader is lost
	// to, whenever they begin: those in which nothing is answered, and those in which
	// each request fails at once.
	Silent, Refused time.Duration
	// Writes and Reads are store operations in a month of 730 hours.
	Writes, Reads float64
}

const month = 730 * time.Hour // 365 days / 12

// Extend is how long after an extension the next one is begun.
func (c Choice) Extend() time.Duration {
	if c.Every > 0 {
		return c.Every
	}
	return (c.Term - c.Skew) / 2
}

func (c Choice) poll() time.Duration {
	if c.Poll > 0 {
		return c.Poll
	}
	return c.Term / 2
}

// Work applies the formulas.
func (c Choice) Work() *Result {
	r := &Result{Crash: c.crash(), HandOver: c.handOver(), Standby: c.proved()}
	r.Silent, r.Refused = c.outages()
	r.Writes = month.Seconds() / c.Extend().Seconds()
	switch others := float64(c.Candidates - 1); {
	case !c.Store.Pushes:
		r.Reads = others * month.Seconds() / c.poll().Seconds()
	case c.Store.Fetches:
		r.Reads = others * r.Writes
	case c.Store.Asks:
		r.Reads = (others + 1) * r.Writes
	}
	return r
}

// crash: the last extension may have been begun at any time up to Extend ago, and
// said that the term ends a Term after that, by the leader's clock. A standby reads and
// writes when its own clock is MaxClockSkew past that. Each of the two clocks is off by
// up to Skew, either way.
//
// If clocks are not compared, a standby waits for a Term and the allowance for drift
// from when it saw the last extension, which on a store that is polled may be an
// interval later.
//
// Standbys spread what they ask then over a twentieth of the term, a second at most, and
// over half of that if the store pushes. The first of them acquires the record.
func (c Choice) crash() Span {
	extend, takeOver := c.Extend(), 2*c.Store.Latency
	spread := min(c.Term/20, time.Second)
	if c.Store.Pushes {
		spread /= 2
	}
	turn := spread / time.Duration(max(c.Candidates, 1)) // of the first, as a mean
	if c.Clocks == leaderelection.Unsynchronized {
		wait := c.Term + max(c.Skew, c.Term/100)
		seen := c.Store.Latency // at the latest, since the extension began
		if !c.Store.Pushes {
			seen += c.poll()
		}
		return Span{wait - extend, wait - extend/2 + seen/2 + turn + takeOver, wait + seen + spread + takeOver}
	}
	wait := c.Term + c.Skew
	return Span{wait - extend - 2*c.Skew, wait - extend/2 + turn + takeOver, wait + 2*c.Skew + spread + takeOver}
}

// handOver: the leader writes that it has gone, a standby is told or reads of it, and
// writes.
func (c Choice) handOver() Span {
	if c.Store.Fetches {
		return Span{3 * c.Store.Latency, 7 * c.Store.Latency / 2, 4 * c.Store.Latency}
	}
	if c.Store.Pushes {
		return Span{2 * c.Store.Latency, 5 * c.Store.Latency / 2, 3 * c.Store.Latency}
	}
	least := 2 * c.Store.Latency
	return Span{least, least + c.poll()/2, least + c.poll() + c.Store.Latency}
}

// proved: the process that has the proof reads, and acquires. On a store that is polled the record may be
// known from a read already, or just be read for the last time before the death.
func (c Choice) proved() Span {
	l := c.Store.Latency
	if c.Store.Pushes {
		return Span{2 * l, 2 * l, 2 * l}
	}
	return Span{l, 2 * l, 3 * l}
}

// outages: at worst, one begins just before an extension is due, when the leader's
// view has all of its span left but for Extend.
//
// If nothing is answered, each call is given up after a quarter of the term; of those that the
// view leaves room for, the last must be answered before it ends. If each request fails, the pauses
// between them double from a 32nd of the term to an eighth, and are lengthened by up to a
// quarter: the last request that fails may be one such pause before the first that works.
// A request is a read, and then the extension itself.
func (c Choice) outages() (silent, refused time.Duration) {
	left := max(c.Term-c.Skew-c.Before-c.Extend()-2*c.Store.Latency, 0)
	if left > 0 {
		silent = (left - 1).Truncate(c.Term / 4)
	}
	base := min(max(c.Term/32, 250*time.Millisecond), time.Second)
	pause := max(min(c.Term/8, 30*time.Second), 4*base)
	return silent, max(left-5*pause/4, silent, 0)
}

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

// Store is what planning needs to know of a kind of store.
type Store struct {
	Name       string        // the scheme of its URLs
	Pushes     bool          // it tells of changes; else standbys poll
	Fetches    bool          // what it tells bears no record: each notice is answered by a read
	Asks       bool          // each notice is the answer to a request that waited for it, the leader's own too
	Latency    time.Duration // of a request within a region, as a rule of thumb
	Fastest    time.Duration // between two writes to one record, if the store limits that
	OneMachine bool          // all candidates share a clock
}

// Stores are those that can be planned for.
var Stores = []Store{
	{Name: "gs", Latency: 60 * time.Millisecond, Fastest: time.Second},
	{Name: "s3", Latency: 30 * time.Millisecond},
	{Name: "azblob", Latency: 20 * time.Millisecond},
	{Name: "dynamodb", Latency: 8 * time.Millisecond},
	{Name: "nats", Pushes: true, Latency: 2 * time.Millisecond},
	{Name: "redis", Pushes: true, Latency: time.Millisecond},
	{Name: "etcd", Pushes: true, Latency: 5 * time.Millisecond},
	{Name: "postgres", Pushes: true, Latency: 3 * time.Millisecond},
	{Name: "mysql", Latency: 4 * time.Millisecond},
	{Name: "sqlite", Latency: 3 * time.Millisecond, OneMachine: true},
	{Name: "mongodb", Pushes: true, Latency: 8 * time.Millisecond},
	{Name: "rethinkdb", Pushes: true, Latency: 5 * time.Millisecond},
	{Name: "kubernetes", Pushes: true, Latency: 10 * time.Millisecond},
	{Name: "zookeeper", Pushes: true, Fetches: true, Latency: 5 * time.Millisecond},
	{Name: "consul", Pushes: true, Asks: true, Latency: 5 * time.Millisecond},
	{Name: "file", Pushes: true, Latency: 3 * time.Millisecond, OneMachine: true},
}

// Lookup returns the store of that name, nil if there is none.
func Lookup(name string) *Store {
	for i := range Stores {
		if Stores[i].Name == name {
			return &Stores[i]
		}
	}
	return nil
}
