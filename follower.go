package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// maxAbandoned is how many calls that ignored the end of their ctx may be left
// hanging. Further ones wait until one of these returns: a store that hangs must
// not pile up goroutines.
const maxAbandoned = 4

// follower is how a campaign and an observer learn of the record: by at most one store
// call at a time, and a feed where the store has one. What comes of them reaches the
// owner's loop as events; what they mean is for the owner. Everything but post belongs
// to the loop's goroutine.
type follower struct {
	*timekeeper
	mailbox
	decider RaceDecider
	place   atomic.Pointer[string] // see askPlace
	poll    time.Duration
	timeout time.Duration // of one store call
	logger  *slog.Logger
	trace   *Trace
	events  events

	ctx     context.Context // of store calls and feeds: its values, without its end
	winding bool            // all of them are told to end

	call      *call // the one in flight
	hanging   int   // calls given up that have not returned
	worked    bool  // some read has succeeded, or the feed has delivered
	wrote     bool  // the store has taken a write, or has judged one
	failure   error // an ErrPermanent of a read or write, before any had worked
	reads     retry
	lastRead  time.Duration // when the last read began
	everAsked bool
	setBack   setBack

	feed        ChangeFeed // nil: poll
	feedUp      bool       // it has delivered, and not failed since
	feedSession *session
	feedRunning bool
	feedMissed  bool          // it has failed since it last delivered
	heard       time.Duration // when it last delivered
	outrun      int           // reads in a row that knew more than the feed had told
	feeds       retry
}

// call is one store call.
type call struct {
	kind      OpKind
	entry     *RaceEntry // what is written
	over      *RaceEntry // what it is conditional on
	start     instant
	deadline  time.Duration
	cancel    context.CancelFunc
	abandoned bool
}

// answer is the event that a call has returned, or, when it was given up, that it has not.
type answer struct {
	*call
	givenUp bool
	got     *RaceEntry
	token   LeaderToken
	err     error
}

// init prepares a follower. name seeds its jitter; term spaces its retries.
func (f *follower) init(ctx context.Context, clock clocks.Clock, d RaceDecider, name string, term time.Duration) {
	f.timekeeper = newTimekeeper(clock)
	f.decider = d
	f.feed, _ = d.(ChangeFeed)
	f.timeout = max(term/4, minInterval)
	f.reads, _ = backoffs(name, term)
	f.feeds = f.reads
	f.feeds.limit = max(f.feeds.limit, term)
	f.ctx = context.WithoutCancel(ctx)
	f.events.idle = func() { f.post(lookAgain{}) }
}

// begin makes a store call, in a goroutine of its own. What a write puts entry over is
// known of its answer.
func (f *follower) begin(now instant, kind OpKind, entry, over *RaceEntry) {
	ctx, cancel := context.WithCancel(f.ctx)
	k := &call{kind: kind, entry: entry, over: over, start: now, deadline: now.mono + f.timeout, cancel: cancel}
	f.call = k
	if kind == OpRead {
		f.lastRead, f.everAsked = now.mono, true
	}
	go func() {
		a := &answer{call: k, err: errGoexit}
		// Deferred: also when it ended its goroutine, as t.FailNow does.
		defer func() {
			cancel()
			f.post(a)
		}()
		f.askPlace()
		if k.kind == OpRead {
			a.got, a.err = readCurrent(ctx, f.decider)
		} else if a.err = k.entry.damaged(); a.err == nil {
			a.token, a.err = f.decider.WriteEntry(ctx, k.entry)
		}
	}()
}

var errGoexit = errors.New("leaderelection: the RaceDecider ended its goroutine instead of returning")

// readCurrent is d.ReadCurrent, with a look at what no store's answer can be.
func readCurrent(ctx context.Context, d RaceDecider) (*RaceEntry, error) {
	e, err := d.ReadCurrent(ctx)
	switch {
	case err != nil:
		return nil, err
	case e == nil:
		return nil, fmt.Errorf("leaderelection: the RaceDecider's ReadCurrent returned nil without an error: %w", ErrPermanent)
	}
	if err := e.damaged(); err != nil {
		return nil, fmt.Errorf("leaderelection: the record at %s: %w", placeOf(d), err)
	}
	return e, nil
}

// askPlace asks the decider once for its place, as part of a store call: the loop does not wait
// for user code, and String may wait for the very call that hangs.
func (f *follower) askPlace() {
	if f.place.Load() == nil {
		place := placeOf(f.decider)
		f.place.Store(&place)
	}
}

// knownPlace is the place, as far as the decider has said it.
func (f *follower) knownPlace() string {
	if place := f.place.Load(); place != nil {
		return *place
	}
	return fmt.Sprintf("a %T", f.decider)
}

// placeOf says where d keeps its record, if d says so.
func placeOf(d RaceDecider) string {
	if s, ok := d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("a %T", d)
}

// settle closes the call that a is the answer to, be it in time or late.
func (f *follower) settle(a *answer, now instant) {
	if a.abandoned {
		f.hanging--
	} else {
		f.call = nil
		f.traceCall(a, now)
	}
	worked := &f.wrote
	if a.kind == OpRead {
		worked = &f.worked
	}
	switch {
	case a.err == nil || errors.Is(a.err, ErrLostRace):
		*worked = true
	case errors.Is(a.err, ErrPermanent) && !*worked && f.failure == nil:
		f.failure = a.err
	}
	switch {
	case a.kind != OpRead || a.abandoned:
	case a.err != nil:
		f.reads.failed(a.start.mono)
	default:
		f.reads.worked()
	}
}

// giveUpCall abandons the call in flight when its time is over, and returns that as its
// answer; else nil.
func (f *follower) giveUpCall(now instant) *answer {
	k := f.call
	if k == nil || now.mono < k.deadline {
		return nil
	}
	k.abandoned = true
	k.cancel()
	f.call = nil
	f.hanging++
	err := fmt.Errorf("leaderelection: %s at %s: no answer within %v: %w", k.kind, f.knownPlace(), k.deadline-k.start.mono, context.DeadlineExceeded)
	late := &answer{call: k, givenUp: true, err: err}
	f.traceCall(late, now)
	if k.kind == OpRead {
		f.reads.failed(k.start.mono)
	}
	return late
}

// mayCall reports whether a call can be made now, and else when to look again.
func (f *follower) mayCall(wake *alarm) bool {
	if f.call != nil {
		wake.at(f.call.deadline)
		return false
	}
	return f.hanging < maxAbandoned // a call that returns wakes the loop
}

// read reads at the elapsed time due, or as soon after it as failures allow.
func (f *follower) read(wake *alarm, due time.Duration) {
	due = max(due, f.reads.notBefore)
	if wake.now.mono < due {
		wake.at(due)
		return
	}
	f.begin(wake.now, OpRead, nil, nil)
	wake.at(f.call.deadline)
}

// pollDue is when a follower reads for want of a feed, or of a leader: while no
// term is known to be running, nothing else would show that the feed has fallen
// silent.
func (f *follower) pollDue(wake *alarm, k *knowledge) (due time.Duration, polling bool) {
	switch e := k.latest; {
	case f.feedUp && e != nil && !e.Vacant() && !k.over(e).reached(wake.now):
		// A feed that is silent for longer than anybody can lead without a word has
		// fallen silent, or a clock that is ahead has written the record.
		silent := max(f.heard, f.lastRead) + k.termOf(e) + k.skew
		if wake.now.mono < silent {
			wake.until(k.over(e))
			wake.at(silent)
			return 0, false
		}
		return silent, true
	case f.feedUp:
		return max(f.lastRead, f.heard) + f.poll, true
	case k.base == nil && f.reads.fails > 0:
		return 0, true // nothing is known yet: only the back-off spaces the reads
	case f.everAsked:
		return f.lastRead + f.poll, true
	case f.feed != nil && f.feedRunning:
		return f.timeout, true // the feed's first record is on its way
	}
	return 0, true
}

// tellNews tells Trace of a record that is newer than all before it.
func (f *follower) tellNews(e *RaceEntry) {
	if t := f.trace; t != nil && t.News != nil {
		entry := e.Clone()
		f.events.add(func() { t.News(*entry) })
	}
}

func (f *follower) traceCall(a *answer, now instant) {
	if f.trace != nil && f.trace.StoreOp != nil {
		op := StoreOp{Kind: a.kind, Start: a.start.wall, Duration: now.mono - a.start.mono, Abandoned: a.abandoned, Err: a.err}
		if e := a.got; e != nil {
			op.Number = e.ElectionNumber
			op.CommitTS = commitTS(e.Token)
		} else if a.entry != nil {
			op.Number = a.entry.ElectionNumber
			op.CommitTS = commitTS(a.token)
		}
		f.events.add(func() { f.trace.StoreOp(op) })
	}
	switch {
	case a.err == nil:
		f.log(slog.LevelDebug, "store", "op", string(a.kind), "took", now.mono-a.start.mono)
	case errors.Is(a.err, ErrLostRace):
		f.log(slog.LevelDebug, "store", "op", string(a.kind), "took", now.mono-a.start.mono, "err", a.err)
	case f.winding && errors.Is(a.err, context.Canceled):
		f.log(slog.LevelDebug, "store", "op", string(a.kind), "took", now.mono-a.start.mono, "err", "no longer awaited, at the end")
	case errors.Is(a.err, ErrPermanent): // whether it is tried again depends on what has worked before
		f.log(slog.LevelWarn, "a store operation failed", "op", string(a.kind), "took", now.mono-a.start.mono, "err", a.err)
	default:
		f.log(slog.LevelWarn, "a store operation failed; it will be tried again", "op", string(a.kind), "took", now.mono-a.start.mono, "err", a.err)
	}
}

func commitTS(t LeaderToken) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.CommitTS()
}

// log tells the Logger, without waiting for it.
func (f *follower) log(level slog.Level, msg string, args ...any) {
	if f.logger == nil {
		return
	}
	l, at := f.logger, f.now().wall
	f.events.add(func() {
		if !l.Enabled(f.ctx, level) {
			return
		}
		r := slog.NewRecord(at, level, "leaderelection: "+msg, 0)
		r.Add(args...)
		_ = l.Handler().Handle(f.ctx, r)
	})
}

// wind ends all calls and feeds, and reports whether they and the events have come
// to their end.
func (f *follower) wind() bool {
	f.winding = true
	if f.call != nil {
		f.call.cancel()
	}
	if f.feedSession != nil {
		f.feedSession.cancel()
	}
	return f.call == nil && f.hanging == 0 && !f.feedRunning && !f.events.busy()
}

// tooFar reports whether a held record's term ends later than clocks within bounds
// allow, and by how much.
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
