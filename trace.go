package leaderelection

import "time"

// Trace is told what a campaign or an observer does, for metrics, tracing and
// tests. Every hook may be nil. The hooks of one campaign are called one at a
// time, in order, by a goroutine that the election does not wait for: a slow
// hook delays only later hooks, and where one is stuck the oldest of more than
// a thousand waiting events are dropped.
//
// Times are by the campaign's clock.
type Trace struct {
	// StoreOp is called when a store operation has been answered or given up.
	StoreOp func(StoreOp)
	// StatusChanged is called when a campaign's Status has changed.
	StatusChanged func(StatusChange)
	// Extended is called when the view was moved on: by the acquisition of a
	// leadership, before StatusChanged tells that it leads, and by each confirmed
	// extension.
	Extended func(ViewExtended)
	// Feed is called when a ChangeFeed has delivered its first record, and
	// when it has failed.
	Feed func(FeedEvent)
	// News is called for each record newer than all before it, whoever wrote
	// it and however it was learned.
	News func(RaceEntry)
	// ClockSkew is called when this machine's clock has been proved to be off
	// by more than MaxClockSkew, once until it is no longer; also where
	// Config.WarnOnClockSkew says to go on.
	ClockSkew func(ClockSkewError)
	// DuplicateID is called when another live process is seen to lead under
	// this candidate's LeaderID, once for each of its leaderships. The two never
	// lead at once, but they are not told apart by their clients.
	DuplicateID func(RaceEntry)
}

// OpKind is what a store operation was for.
type OpKind string

// The kinds of store operation.
const (
	OpRead    OpKind = "read"    // ReadCurrent
	OpAcquire OpKind = "acquire" // WriteEntry that claims a leadership
	OpExtend  OpKind = "extend"  // WriteEntry that extends one
	OpRelease OpKind = "release" // WriteEntry that leaves the record vacant
	OpRequest OpKind = "request" // WriteEntry that asks a less preferred leader to hand over (Config.Priority)
)

// StoreOp is one call of a RaceDecider.
type StoreOp struct {
	Kind     OpKind
	Start    time.Time     // when the call began
	Duration time.Duration // until its answer, or until it was given up
	// Abandoned: no answer came in time. The campaign went on without it; Err
	// then wraps context.DeadlineExceeded, and a late answer is not reported
	// again.
	Abandoned bool
	Err       error          // what it returned; nil is success
	CommitTS  time.Time      // the store's own time of the version read or written, where it says
	Number    ElectionNumber // of the record read or written
}

// StatusChange is one change of a campaign's Status.
type StatusChange struct {
	From, To Status
	// Cause is why a leadership ended or is ending (the causes of a leader's ctx),
	// why the campaign has stopped, or nil.
	Cause  error
	Number ElectionNumber // of the leadership begun or ended; NoElections where there is none
	Time   time.Time
}

// ViewExtended is one confirmed acquisition or extension.
type ViewExtended struct {
	Number    ElectionNumber
	Extension uint64
	// Remaining is what was left of the view when the confirmation arrived:
	// the reserve that a slow store has eaten into. Zero for an acquisition.
	Remaining time.Duration
	Expiry    time.Time // the view's new end
}

// FeedEvent is the start or the failure of a ChangeFeed.
type FeedEvent struct {
	// Err is why the feed failed, and nil when it has started.
	Err error
}

// Status is what a campaign is doing.
type Status int32

const (
	// Following: somebody else leads, or nobody; campaigning when the record
	// allows it.
	Following Status = iota
	// Leading: the view is in the future, the leader's ctx is live.
	Leading
	// Draining: the leader's ctx is cancelled and its callbacks are still
	// winding down, or the record is being released.
	Draining
	// Stopped: the campaign is over.
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
