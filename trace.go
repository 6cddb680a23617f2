package leaderelection

import (
	"time"

	"github.com/c8e606e4/leaderelection/internal/hooks"
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
}

// JoinTraces returns a Trace that calls the hooks of all traces, in their order. Use it to have
// metrics and spans from one campaign. A nil Trace has no hooks.
func JoinTraces(traces ...*Trace) *Trace {
	all := &Trace{}
	for _, t := range traces {
		if t == nil {
			continue
		}
		all.StoreOp = hooks.InTurn(all.StoreOp, t.StoreOp)
		all.StatusChanged = hooks.InTurn(all.StatusChanged, t.StatusChanged)
		all.Extended = hooks.InTurn(all.Extended, t.Extended)
		all.Feed = hooks.InTurn(all.Feed, t.Feed)
		all.News = hooks.InTurn(all.News, t.News)
		all.ClockSkew = hooks.InTurn(all.ClockSkew, t.ClockSkew)
		all.DuplicateID = hooks.InTurn(all.DuplicateID, t.DuplicateID)
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
	switch s {
	case Following:
		return "following"
	case Leading:
		return "leading"
	case Draining:
		return "draining"
	case Stopped:
		return "stopped"
	}
	return "unknown"
}
