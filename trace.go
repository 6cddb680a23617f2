package leaderelection

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection/internal/loop"
)

// Trace has hooks that a campaign or an observer calls. Use it for metrics, tracing and tests.
//
// Every hook may be nil. The hooks of one campaign are called one at a time, in order, by a
// goroutine that the election does not wait for. A slow hook delays only later hooks. If a hook
// is stuck and more than a thousand events wait, the oldest are dropped. Times are by the
// campaign's clock.
type Trace struct {
	// StoreOp is called when a store operation has been answered or given up.
	StoreOp func(StoreOp)
	// StatusChanged is called when a campaign's Status has changed.
	StatusChanged func(StatusChange)
	// Extended is called when a write has moved the view on: for the acquisition of a
	// leadership, before StatusChanged reports Leading, and for each confirmed extension.
	Extended func(ViewExtended)
	// Feed is called when a ChangeFeed has delivered its first record, and when it has
	// failed.
	Feed func(FeedEvent)
	// News is called for each record that is newer than all before it, by any writer, and
	// however it was learned.
	News func(RaceEntry)
	// ClockSkew is called when this machine's clock has been proved to be off by more than
	// MaxClockSkew. It is called again only after the clock was no longer proved wrong.
	ClockSkew func(*ClockSkewError)
	// DuplicateID is called when another live process leads under this candidate's LeaderID,
	// once for each of its leaderships. The two never lead at once, but their clients
	// cannot tell them apart.
	DuplicateID func(RaceEntry)
	// Job is called when a campaign begins that is for a job: by Run, by Once, or by StartOnce or
	// StartHeld with a hold. It gets the Hold, zero for Run. Nobody leads between the runs of a job.
	Job func(hold time.Duration)
}

// noTrace has no hooks.
var noTrace = &Trace{}

// JoinTraces returns a Trace that calls the hooks of all traces, in their order. Use it to have
// metrics and spans from one campaign. A nil Trace has no hooks.
func JoinTraces(traces ...*Trace) *Trace {
	all := &Trace{}
	for _, t := range traces {
		if t == nil {
			continue
		}
		all.StoreOp = loop.InTurn(all.StoreOp, t.StoreOp)
		all.StatusChanged = loop.InTurn(all.StatusChanged, t.StatusChanged)
		all.Extended = loop.InTurn(all.Extended, t.Extended)
		all.Feed = loop.InTurn(all.Feed, t.Feed)
		all.News = loop.InTurn(all.News, t.News)
		all.ClockSkew = loop.InTurn(all.ClockSkew, t.ClockSkew)
		all.DuplicateID = loop.InTurn(all.DuplicateID, t.DuplicateID)
		all.Job = loop.InTurn(all.Job, t.Job)
	}
	return all
}

// OpKind is the purpose of a store operation.
type OpKind string

// The kinds of store operation.
const (
	OpRead    OpKind = "read"    // ReadCurrent
	OpAcquire OpKind = "acquire" // WriteEntry that claims a leadership
	OpExtend  OpKind = "extend"  // WriteEntry that extends one
	OpRelease OpKind = "release" // WriteEntry that leaves the record vacant
)

// StoreOp describes one call of a RaceDecider, for Trace.StoreOp.
type StoreOp struct {
	Kind     OpKind
	Start    time.Time     // when the call began
	Duration time.Duration // until its answer, or until it was given up
	// Abandoned means that no answer came in time, and that the campaign went on without it.
	// Err then wraps context.DeadlineExceeded. A late answer is not reported again.
	Abandoned bool
	Err       error          // nil if the call worked
	CommitTS  time.Time      // the store's own time of the version read or written; zero if it does not tell
	Number    ElectionNumber // of the record read or written
}

// StatusChange describes one change of a campaign's Status, for Trace.StatusChanged.
type StatusChange struct {
	From, To Status
	// Cause says why a leadership ended or is ending (see the causes of a leader's ctx), or
	// why the campaign has stopped. Nil otherwise.
	Cause  error
	Number ElectionNumber // of the leadership that began or ended, or NoElections
	Time   time.Time
}

// ViewExtended describes one confirmed acquisition or extension, for Trace.Extended.
type ViewExtended struct {
	Number    ElectionNumber
	Extension uint64
	// Remaining is how much of the view was left when the confirmation arrived. A slow store
	// makes it small. Zero for an acquisition.
	Remaining time.Duration
	Expiry    time.Time // the view's new end
}

// FeedEvent describes the start or the failure of a ChangeFeed, for Trace.Feed.
type FeedEvent struct {
	// Err is the error of a feed that failed, or nil if the feed has started.
	Err error
}

// Candidate reports whether this process leads. Routers, probes and schedulers ask it. A
// [Campaign] is one. Ask Status as well as View: View alone does not show that leadership is
// being given up.
type Candidate interface {
	View() *TimeView   // of the newest leadership; never nil
	Status() Status    // begin new work only if it is Leading
	Leader() RaceEntry // the newest record known
}

// Status says what a campaign is doing.
type Status int32

const (
	// Following means that this candidate does not lead. It campaigns when the record allows.
	Following Status = iota
	// Leading means that the view is in the future and the leader's ctx is live.
	Leading
	// Draining means that the leader's ctx is cancelled while its callbacks still wind down,
	// or that the record is being released.
	Draining
	// Stopped means that the campaign is over.
	Stopped
)

// String returns the status in lower case.
func (s Status) String() string {
	if s < Following || s > Stopped {
		return "unknown"
	}
	return [...]string{"following", "leading", "draining", "stopped"}[s]
}

// report publishes the status if it has changed.
func (c *Campaign) report(now instant) {
	if c.observer != nil {
		return
	}
	status, cause, number := Following, error(nil), NoElections
	switch r := c.leadership; {
	case c.ending:
		status, cause = Stopped, c.err
	case r != nil && r.cause == nil:
		status, number = Leading, r.number
	case r != nil:
		status, cause, number = Draining, r.cause, r.number
	case c.releasing(now):
		status, number = Draining, c.l.proved.ElectionNumber
	}
	from := Status(c.status.Load())
	if from == status {
		return
	}
	if from == Leading && cause == nil {
		// The leadership and all its callbacks ended within one step.
		number, cause = c.last.number, c.last.cause
	}
	c.status.Store(int32(status))
	notify(c, c.cfg.Trace.StatusChanged, StatusChange{From: from, To: status, Cause: cause, Number: number, Time: now.wall})
	level := slog.LevelInfo
	if errors.Is(cause, ErrOusted) || errors.Is(cause, ErrExpired) {
		level = slog.LevelWarn
	}
	args := []any{"id", c.cfg.LeaderID, "was", from.String()}
	if number != NoElections {
		args = append(args, "token", uint64(number))
	}
	if cause != nil {
		args = append(args, "cause", cause)
	}
	c.log(level, status.String(), args...)
}

// tellChange calls LeaderChanged for new leaderships and vacancies. t is the state of the record that was known before.
func (c *Campaign) tellChange(t, e *RaceEntry) {
	if e.ElectionNumber == NoElections || c.ending {
		return
	}
	if t != nil && t.ElectionNumber == e.ElectionNumber && t.LeaderID == e.LeaderID && (e.Vacant() || t.Incarnation == e.Incarnation) {
		return
	}
	switch {
	case e.Vacant():
		args := []any{"id", c.cfg.LeaderID, "token", uint64(e.ElectionNumber), "successor", e.Successor}
		if e.Hold > 0 {
			args = append(args, "hold_until", e.TermExpiry.Add(min(e.Hold, MaxTermLength)))
		}
		c.log(slog.LevelInfo, "vacant", args...)
	case !c.l.mine(e):
		c.log(slog.LevelInfo, "another leads", "id", c.cfg.LeaderID, "leader", e.LeaderID, "token", uint64(e.ElectionNumber), "until", e.TermExpiry)
	}
	if c.cfg.LeaderChanged != nil {
		c.deliver(func(e RaceEntry) { c.cfg.LeaderChanged(c.ctx, e) }, e, nil)
	}
}

// diagnosis logs the faults of others that records show. It decides nothing. It belongs to the loop.
type diagnosis struct {
	c        *Campaign
	setBack  setBack
	any      bool           // a record was seen
	reported ElectionNumber // the last one that another process won under this LeaderID
	far      string         // the leader by whose record clocks disagree
	farAgain time.Duration  // until then it is not logged again of this leader
}

// disagreeEvery is how often it is logged that a leader's clock and this one disagree.
const disagreeEvery = time.Minute

// look takes in a record that was learned. If it is the campaign's own, the campaign wrote it.
func (d *diagnosis) look(e *RaceEntry, k *claims, now instant, news bool, how source, own bool) {
	d.checkSetBack(e, k, now, how)
	if !news {
		return
	}
	d.checkDouble(e, own)
	if err := tooFar(e, now.wall, k.skew); err != nil && !k.measured && (e.LeaderID != d.far || now.mono >= d.farAgain) {
		d.far, d.farAgain = e.LeaderID, now.mono+disagreeEvery
		d.c.log(slog.LevelWarn, "clocks disagree", "err", err)
	}
}

// setBack remembers that reads return a record older than the newest known.
type setBack struct {
	older bool
	since time.Duration // when the first such read was answered
	told  bool
	gone  bool // it was logged that the record is gone
}

// checkSetBack logs, once, that the record is gone, as soon as none is found although one was
// known. It also logs, once, that the store has gone back, if for more than a term each read has
// returned a record older than one that was there before. No replica should lag for so long. An old
// record is not news, so a leader by that record is not known here.
func (d *diagnosis) checkSetBack(e *RaceEntry, k *claims, now instant, how source) {
	b, c := &d.setBack, d.c
	switch {
	case e.ElectionNumber == NoElections && k.newest.of.ElectionNumber > NoElections:
		if !b.gone {
			b.gone = true
			c.log(slog.LevelWarn, "the record is gone: it was deleted, or emptied", "known", uint64(k.newest.of.ElectionNumber), "place", c.knownPlace())
		}
	case how == wasPushed:
		b.gone = b.gone && e.Compare(k.newest.of) < 0
	case e.Compare(k.newest.of) >= 0:
		*b = setBack{}
	case !b.older:
		b.older, b.since = true, now.mono
	case !b.told && now.mono-b.since > k.termOf(k.newest.of):
		b.told = true
		c.log(slog.LevelWarn, "the store has gone back: it was restored, or the record was deleted", "known", uint64(k.newest.of.ElectionNumber), "read", uint64(e.ElectionNumber),
			"place", c.knownPlace())
	}
}

// checkDouble reports another live process under this candidate's LeaderID. The first record that a
// campaign finds may come from its own former process. A record that is newer than that does not.
func (d *diagnosis) checkDouble(e *RaceEntry, own bool) {
	first := !d.any
	d.any = true
	if e.Vacant() || e.LeaderID != d.c.cfg.LeaderID || own || first || d.reported == e.ElectionNumber {
		return
	}
	if d.c.l.hold > 0 {
		return // perhaps this machine's job of the last period, which takes longer than a period
	}
	d.reported = e.ElectionNumber
	d.c.log(slog.LevelError, "another process uses this candidate's LeaderID, or the record was edited: give each its own", "id", d.c.cfg.LeaderID, "token", uint64(e.ElectionNumber), "incarnation", e.Incarnation)
	d.c.tellEntry(d.c.cfg.Trace.DuplicateID, e)
}

// refusals counts the writes that a store refused as lost races though nobody else had won: the
// record, read again, was still what they were conditional on.
type refusals struct {
	over  *RaceEntry // what the last refused write was conditional on, until the next read
	count int
}

// maxRefusals is after how many such refusals a warning is logged. Fewer may come from stale reads.
const maxRefusals = 3

// check compares what a read has returned after a refusal with what the write was conditional on.
func (r *refusals) check(e *RaceEntry, d *diagnosis) {
	over := r.over
	if r.over = nil; over == nil {
		return
	}
	if !same(e, over) {
		r.count = 0
		return
	}
	if r.count++; r.count == maxRefusals {
		d.c.log(slog.LevelWarn, "the store refuses this candidate's writes as lost races, though nobody else writes: something between the two "+
			"changes what the condition is on (a proxy that weakens or strips ETags, as one that compresses does; a store that wants them quoted otherwise), "+
			"a policy refuses with the same code, or reads are stale", "id", d.c.cfg.LeaderID, "refused", r.count, "place", d.c.knownPlace())
	}
}

// tooFar returns an error if a held record's term ends later than clocks within bounds allow. It
// says by how much.
func tooFar(e *RaceEntry, wall time.Time, skew time.Duration) error {
	if e.Vacant() || e.Unsynchronized || e.TermLength <= 0 || e.TermLength > MaxTermLength {
		return nil
	}
	latest := wall.Add(e.TermLength + 2*skew)
	if over := e.TermExpiry.Sub(latest); over > 0 {
		return fmt.Errorf("the term of %q ends %v later than clocks within MaxClockSkew allow: one of the two clocks is wrong", e.LeaderID, over)
	}
	return nil
}

// askPlace asks the decider once for its place, as part of a store call or of what the loop does
// not wait for either: String is user code, and may wait for the very call that hangs.
func (c *Campaign) askPlace() {
	if c.place.Load() == nil {
		place := placeOf(c.cfg.Decider)
		c.place.CompareAndSwap(nil, &place)
	}
}

// firstPlace is the place for the first log line. It is asked for when that is written.
type firstPlace struct{ c *Campaign }

// LogValue implements slog.LogValuer.
func (p firstPlace) LogValue() slog.Value {
	p.c.askPlace()
	return slog.StringValue(p.c.knownPlace())
}

// tellPlace tells, when the store has answered for the first time, of the place that the decider
// has found by that, if the first log line could not name it.
func (c *Campaign) tellPlace() {
	if c.placed {
		return
	}
	c.placed = true
	c.events.Add(func() {
		c.askPlace()
		if found := placeOf(c.cfg.Decider); found != c.knownPlace() {
			c.place.Store(&found)
			c.log(slog.LevelInfo, "the record's place was found", "place", found)
		}
	})
}

// knownPlace is the place, as far as the decider has said it.
func (c *Campaign) knownPlace() string {
	if place := c.place.Load(); place != nil {
		return *place
	}
	return fmt.Sprintf("a %T", c.cfg.Decider)
}

// placeOf says where d keeps its record, if d says so.
func placeOf(d RaceDecider) string {
	if s, ok := d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("a %T", d)
}
