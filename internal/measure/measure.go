// Package measure works out of leaderelection.Trace what there is to measure in an
// election. It is what leotel and leprom have in common, so that one dashboard and one set
// of alerts fit both.
package measure

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/shard"
)

// Election is what one process knows of one election. Its methods may be called by any
// number of goroutines at once.
type Election struct {
	clock   clocks.Clock
	skew    time.Duration
	compare bool // wall clocks are compared, so that an offset means something

	mu      sync.Mutex
	term    time.Duration
	status  leaderelection.Status
	own     leaderelection.ElectionNumber // of the last leadership of one's own
	viewEnd time.Time
	known   leaderelection.RaceEntry // without Token
	longest time.Duration            // for how long at most known's leadership has kept others out, as for a job
	ends    time.Time                // of known's term, by this clock
	job     bool                     // this process campaigns for a job
	hold    time.Duration            // of that job
	learned bool                     // a record has been learned
	counted time.Time                // leaderless is complete up to here
	without time.Duration            // leaderless so far
	lastLed time.Time                // until when somebody led, as far as is known; at first: when this began
	offset  offset
	leaving *leaving
}

// offset is what the last write told of the clock.
type offset struct {
	known              bool
	value, uncertainty time.Duration
}

// leaving is a hand-over that has begun.
type leaving struct {
	at     time.Time
	number leaderelection.ElectionNumber
	cause  string
}

// NewElection returns an Election of which nothing is known, as config says of its candidate. Of an
// observer's config nothing but the clock, the skew and the policy is set.
func NewElection(config leaderelection.Config) *Election {
	if config.Clock == nil {
		config.Clock = clocks.System()
	}
	if config.MaxClockSkew == 0 && config.ClockPolicy != leaderelection.SharedClock {
		config.MaxClockSkew = leaderelection.DefaultMaxClockSkew
	}
	return &Election{
		clock: config.Clock, skew: config.MaxClockSkew, term: cmp.Or(config.TermLength, leaderelection.DefaultTermLength),
		compare: config.ClockPolicy == leaderelection.Synchronized, lastLed: config.Clock.Now().Round(0),
	}
}

// Snapshot is how things stand at one moment.
type Snapshot struct {
	Leading    bool // the view lasts, and leadership is not being given up
	Number     leaderelection.ElectionNumber
	Remaining  time.Duration // of the view; 0 while not leading
	Without    time.Duration // for how long nobody has led, in all
	Leaderless time.Duration // for how long nobody has led now; 0: somebody does
	Term, Skew time.Duration
	Job        bool          // it is a job's election: nobody leads between the runs
	Hold       time.Duration // for how long a run of the job keeps others out; 0: it does not

	OffsetKnown         bool
	Offset, Uncertainty time.Duration // of the clock
}

// Now returns how things stand.
func (e *Election) Now() Snapshot {
	now := e.clock.Now().Round(0)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count(now)
	s := Snapshot{
		Number: e.known.ElectionNumber, Without: e.without, Leaderless: e.leaderless(now), Term: e.term, Skew: e.skew, Job: e.job || e.longest > 0, Hold: max(e.longest, e.hold),
		OffsetKnown: e.offset.known, Offset: e.offset.value, Uncertainty: e.offset.uncertainty,
	}
	if e.status == leaderelection.Leading || e.status == leaderelection.Draining {
		s.Remaining = max(0, e.viewEnd.Sub(now))
	}
	s.Leading = e.status == leaderelection.Leading && s.Remaining > 0
	return s
}

// leaderless is for how long nobody has led. Under e.mu.
func (e *Election) leaderless(now time.Time) time.Duration {
	last := e.lastLed
	if !e.known.Vacant() && e.ends.After(last) {
		last = e.ends
	}
	return max(0, now.Sub(last))
}

// StoreOp takes in a store operation.
func (e *Election) StoreOp(op leaderelection.StoreOp) {
	// The CommitTS of a read is from when the record was written.
	if !e.compare || op.Kind == leaderelection.OpRead || op.Err != nil || op.CommitTS.IsZero() {
		return
	}
	half := op.Duration / 2
	o := offset{known: true, value: op.Start.Add(half).Sub(op.CommitTS), uncertainty: half}
	if op.CommitTS.Nanosecond() == 0 {
		// A store that counts whole seconds cuts the rest off: it wrote half
		// a second later, give or take as much.
		o.value -= time.Second / 2
		o.uncertainty += time.Second / 2
	}
	e.mu.Lock()
	e.offset = o
	e.mu.Unlock()
}

// Extended takes in a confirmed acquisition or extension. Of an extension it returns what
// was left of the view, as a share of the view's whole span.
func (e *Election) Extended(x leaderelection.ViewExtended) (reserve float64, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.viewEnd = x.Expiry
	span := e.term - e.skew
	if x.Extension == 0 || span <= 0 {
		return 0, false
	}
	return x.Remaining.Seconds() / span.Seconds(), true
}

// Job takes in that this process campaigns for a job.
func (e *Election) Job(hold time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.job, e.hold = true, hold
}

// StatusChanged takes in a change of status, and reports whether a leadership of this process's own has
// begun ("elected" and "won") or ended ("ended" and a cause).
func (e *Election) StatusChanged(c leaderelection.StatusChange) (what, cause string, is bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.status
	e.status = c.To
	if c.To == leaderelection.Leading {
		e.own = c.Number
		return elected, won, true
	}
	if was != leaderelection.Leading {
		return "", "", false
	}
	cause = causeOf(c.Cause)
	if c.Cause == nil && !c.Time.Before(e.viewEnd) {
		cause = "expired"
	}
	if e.leaving == nil {
		e.leaving = &leaving{at: c.Time, number: e.own, cause: cause}
	}
	return ended, cause, true
}

// The words for a leadership's beginning and end.
const elected, won, ended = "elected", "won", "ended"

// Handover reaches from the moment in which this process began to give up leadership, or
// saw the record vacant, to the next leader's record.
type Handover struct {
	From, To         time.Time
	Number, Previous leaderelection.ElectionNumber
	Cause            string
}

// News takes in a record that is newer than all before it, and reports whether it ends a
// Handover.
func (e *Election) News(r leaderelection.RaceEntry) (Handover, bool) {
	now := e.clock.Now().Round(0)
	r.Token = nil
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count(now)
	e.lastLed = now.Add(-e.leaderless(now))
	if e.learned && r.Vacant() && r.ElectionNumber > e.known.ElectionNumber {
		// Somebody has led meanwhile, too shortly to be seen: until the record was released.
		if led := r.TermExpiry; r.Unsynchronized || led.After(now) {
			e.lastLed = now
		} else if led.After(e.lastLed) {
			e.lastLed = led
		}
	}
	if r.TermLength > 0 {
		e.term = r.TermLength
	}
	if r.ElectionNumber != e.known.ElectionNumber {
		e.longest = 0
	}
	if keeps := r.Hold; keeps > 0 { // beyond the term
		if !r.Vacant() {
			keeps += e.term
		}
		e.longest = max(e.longest, keeps)
	}
	e.known, e.ends = r, r.TermExpiry
	if r.Unsynchronized {
		e.ends = now.Add(r.TermLength) // its writer's clock tells nothing here
	} else if most := now.Add(e.term + 2*e.skew); e.ends.After(most) {
		e.ends = most // a clock that is far ahead has written it: nobody leads for so long without an extension
	}
	if !e.learned {
		e.learned, e.counted = true, now
	}
	return e.handover(now)
}

// handover begins or ends one, where the record that is known now does. Under e.mu.
func (e *Election) handover(now time.Time) (Handover, bool) {
	r, l := &e.known, e.leaving
	switch {
	case r.Vacant() && l == nil && r.ElectionNumber != leaderelection.NoElections:
		e.leaving = &leaving{at: now, number: r.ElectionNumber, cause: "resigned"}
	case !r.Vacant() && l != nil && r.ElectionNumber > l.number:
		e.leaving = nil
		return Handover{From: l.at, To: now, Number: r.ElectionNumber, Previous: l.number, Cause: l.cause}, true
	}
	return Handover{}, false
}

// count brings the leaderless time up to date. Under e.mu.
func (e *Election) count(now time.Time) {
	if !e.learned {
		return // nothing has been known yet
	}
	from := e.counted
	if !e.known.Vacant() && e.ends.After(from) {
		from = e.ends
	}
	if now.After(from) {
		e.without += now.Sub(from)
	}
	if now.After(e.counted) {
		e.counted = now
	}
}

// outcome is what became of a store operation, as one of a few words.
func outcome(op leaderelection.StoreOp) string {
	switch {
	case op.Abandoned:
		return "abandoned"
	case op.Err == nil:
		return "ok"
	case errors.Is(op.Err, leaderelection.ErrLostRace):
		return "lost_race"
	}
	return "error"
}

// ErrorType is err as one of a few words.
func ErrorType(err error) string {
	switch {
	case errors.Is(err, leaderelection.ErrLostRace):
		return "lost_race"
	case errors.Is(err, leaderelection.ErrPermanent):
		return "permanent"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "_OTHER"
}

// words are for the causes that the library knows.
var words = []struct {
	err  error
	word string
}{
	{leaderelection.ErrOusted, "ousted"}, {leaderelection.ErrExpired, "expired"}, {leaderelection.ErrResigned, "resigned"},
	{leaderelection.ErrUnhealthy, "unhealthy"}, {leaderelection.ErrClockSkew, "clock_skew"},
}

// causes are all the words for why a leadership ended.
func causes() []string {
	all := []string{"unknown", "shutdown"}
	for _, c := range words {
		all = append(all, c.word)
	}
	return all
}

// causeOf is why a leadership ended, as one of a few words.
func causeOf(err error) string {
	for _, c := range words {
		if errors.Is(err, c.err) {
			return c.word
		}
	}
	if err == nil {
		return "unknown"
	}
	return "shutdown" // the cause of the ctx given to Start
}

// Group is what a member of a group of package shard knows of it. Its methods may be called
// by any number of goroutines at once.
type Group struct {
	clock clocks.Clock

	mu   sync.Mutex
	now  GroupSnapshot
	seen time.Time // since when the assignment is known
}

// GroupSnapshot is a Group at one moment.
type GroupSnapshot struct {
	Owned int // shards that this member owns
	// By the newest assignment known: how many shards have an owner, have none, and are on
	// the way from one to another.
	Placed, Unowned, Moving int
	Failing                 int // with how many some member has failed, within the last hour
	Version                 uint64
	Known                   bool          // there is an assignment
	Without                 time.Duration // for how long shards had no owner, added up over all shards
}

// NewGroup returns a Group of which nothing is known. A nil clock is the system's.
func NewGroup(clock clocks.Clock) *Group {
	if clock == nil {
		clock = clocks.System()
	}
	return &Group{clock: clock}
}

// Now returns what is known now.
func (g *Group) Now() GroupSnapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count()
	return g.now
}

// count adds up the time that has passed.
func (g *Group) count() {
	now := g.clock.Now()
	if passed := now.Sub(g.seen); !g.seen.IsZero() && passed > 0 {
		g.now.Without += passed * time.Duration(g.now.Unowned)
	}
	g.seen = now
}

// Owns is Trace.Owns.
func (g *Group) Owns() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now.Owned++
}

// LetGo is Trace.LetGo. It returns the cause as one of a few words.
func (g *Group) LetGo(cause error) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now.Owned--
	switch {
	case errors.Is(cause, shard.ErrMoved):
		return "moved"
	case errors.Is(cause, shard.ErrSetBack):
		return "set_back"
	case errors.Is(cause, shard.ErrFailed):
		return "failed"
	}
	return causeOf(cause)
}

// Assignment is Trace.Assignment.
func (g *Group) Assignment(a *shard.Assignment) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count()
	g.now.Unowned, g.now.Moving, g.now.Failing = a.Totals()
	g.now.Placed = a.Len() - g.now.Unowned - g.now.Moving
	g.now.Known, g.now.Version = true, uint64(a.Version())
}
