package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// maxAbandoned is how many abandoned calls that ignore the end of their ctx may hang. Further calls
// wait until one of them returns: a store that hangs must not pile up goroutines.
const maxAbandoned = 4

// follower learns of the record for a campaign or an observer. It makes at most one store call at a
// time, and runs a feed if the store has one. Their results reach the owner's loop as events, and
// the owner decides what they mean. Everything but post belongs to the loop's goroutine.
type follower struct {
	owner *Campaign
	known *claims // the owner's
	*timekeeper
	mailbox loop.Mailbox[event]
	urgency
	decider  RaceDecider
	place    atomic.Pointer[string] // see askPlace
	poll     time.Duration
	timeout  time.Duration // of one store call
	patience time.Duration // how long an ErrDenied may last before it counts
	logger   *slog.Logger
	trace    *Trace
	events   loop.Calls

	ctx     context.Context // of store calls and feeds: the caller's values, without its end
	winding bool            // calls and feed are told to end

	call      *call                 // the one in flight
	hanging   int                   // abandoned calls that have not returned
	worked    bool                  // some read has succeeded, or the feed has delivered
	wrote     bool                  // the store has taken a write, or refused one as a lost race
	answered  bool                  // tellPlace has been called
	failure   error                 // an ErrPermanent of a read or write, before any had worked
	lastErr   atomic.Pointer[error] // of the last call, if it failed
	denied    time.Duration         // since when all calls have ended with an ErrPermanent
	isDenied  bool
	calls     loop.Outage
	reads     loop.Retry
	lastCall  time.Duration // when the last call began
	lastRead  time.Duration // and the last read
	everAsked bool
	awaited   *RaceEntry    // the state of the record for which turn has set turnAt
	turnAt    time.Duration // see turn

	sayBlocked time.Duration // when to say next that calls hang

	feed        ChangeFeed // nil: poll
	feedUp      bool       // it has delivered, and not failed since
	feedSession *session
	feedRunning bool
	heard       time.Duration // when it last delivered
	feedFails   loop.Outage
	outrun      int // reads in a row that were newer than what the feed had delivered
	feeds       loop.Retry
}

// call is one store call.
type call struct {
	kind      OpKind
	entry     *RaceEntry // the record that a write writes
	over      *RaceEntry // the record on which the write is conditional
	start     instant
	deadline  time.Duration
	cancel    context.CancelFunc
	abandoned bool
	told      *error // the error that was reported when it was abandoned
}

// answer says that a call has returned, or that it was given up.
type answer struct {
	*call
	givenUp bool
	got     *RaceEntry
	token   LeaderToken
	err     error
}

// init prepares a follower. Its jitter depends on name, and the pauses of its retries on poll and
// term.
func (f *follower) init(ctx context.Context, clock clocks.Clock, d RaceDecider, name string, poll, term time.Duration) {
	f.timekeeper = newTimekeeper(clock)
	if !f.System {
		f.mailbox.Clock = clock
	}
	f.decider = d
	f.feed, _ = d.(ChangeFeed)
	f.poll, f.timeout, f.patience = poll, min(max(term/4, minInterval), maxCall), term
	f.reads = loop.NewRetry(name, poll, term)
	f.calls.To, f.calls.Over = f.log, "the store is back"
	f.feedFails.To, f.feedFails.Over, f.feedFails.Once = f.log, "the feed delivers", true // a store that cannot push is polled for good
	f.feeds = f.reads
	f.feeds.Limit = max(f.feeds.Limit, term)
	f.ctx = context.WithoutCancel(ctx)
	f.events.Limit, f.events.Idle = maxEvents, func() { f.post(nothing) }
}

// maxCall is how long a store call, or Healthy, may take if terms are long. No store answers so
// late, and a call that hangs must not keep a candidate from the next one for hours.
const maxCall = 30 * time.Second

// begin makes a store call, in its own goroutine. A write puts entry over over, which its answer
// keeps.
func (f *follower) begin(now instant, kind OpKind, entry, over *RaceEntry) {
	ctx, cancel := context.WithCancel(f.ctx)
	k := &call{kind: kind, entry: entry, over: over, start: now, deadline: now.mono + f.timeout, cancel: cancel}
	f.call, f.lastCall = k, now.mono
	if kind == OpRead {
		f.lastRead, f.everAsked = now.mono, true
		if f.poll >= loop.MinPause {
			f.reads.Began(now.mono)
		}
	}
	a := &answer{call: k, err: errGoexit}
	loop.Go(func() {
		f.askPlace()
		if k.kind == OpRead {
			a.got, a.err = readCurrent(ctx, f.decider)
		} else {
			a.token, a.err = writeEntry(ctx, f.decider, k.entry)
		}
	}, func() {
		cancel()
		f.post(func(now instant) {
			f.settle(a, now)
			f.owner.answered(a, now)
		})
	})
}

var errGoexit = errors.New("leaderelection: the RaceDecider ended its goroutine instead of returning")

// readCurrent is d.ReadCurrent. It also refuses answers that no store can give.
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

// writeEntry is d.WriteEntry. It believes a success only if it comes with the token of a new
// version. If not, it is an open question whether the write has happened.
func writeEntry(ctx context.Context, d RaceDecider, e *RaceEntry) (LeaderToken, error) {
	if err := e.damaged(); err != nil {
		return nil, err
	}
	token, err := d.WriteEntry(ctx, e)
	switch {
	case err != nil:
		return nil, err
	case token == nil:
		return nil, fmt.Errorf("leaderelection: writing at %s: the RaceDecider's WriteEntry returned no token for the new version, so nothing shows that it was written", placeOf(d))
	case sameVersion(token, e.Token):
		return nil, fmt.Errorf("leaderelection: writing at %s: the RaceDecider's WriteEntry returned the token that was written over, so nothing shows that it was written", placeOf(d))
	}
	return token, nil
}

// settle closes the call that a answers, in time or late.
func (f *follower) settle(a *answer, now instant) {
	if a.abandoned {
		f.hanging--
		f.tellLate(a, now)
	} else {
		f.call = nil
		f.traceCall(a, now)
	}
	f.respect(a, now)
	worked := &f.wrote
	if a.kind == OpRead {
		worked = &f.worked
	}
	if permanent := errors.Is(a.err, ErrPermanent); !permanent {
		f.isDenied = false
	} else if !f.isDenied {
		f.isDenied, f.denied = true, now.mono
	}
	switch {
	case a.err == nil || errors.Is(a.err, ErrLostRace):
		*worked = true
		f.lastErr.Store(nil)
		f.tellPlace()
	case errors.Is(a.err, ErrPermanent) && !*worked && f.failure == nil && (!errors.Is(a.err, ErrDenied) || now.mono-f.denied >= f.patience):
		f.failure = a.err
	}
	if a.err != nil && !errors.Is(a.err, ErrLostRace) && !f.winding && !a.abandoned {
		f.lastErr.Store(&a.err)
	}
	switch {
	case a.kind != OpRead || a.abandoned:
	case a.err != nil:
		f.reads.Failed(a.start.mono, f.urgent(now))
	default:
		f.reads.Worked()
	}
}

// giveUpCall abandons the call in flight if its time is over, and tells the owner.
func (f *follower) giveUpCall(now instant) {
	k := f.call
	if k == nil || now.mono < k.deadline {
		return
	}
	k.abandoned = true
	k.cancel()
	f.call = nil
	f.hanging++
	err := fmt.Errorf("leaderelection: %s at %s: no answer within %v: %w", k.kind, f.knownPlace(), k.deadline-k.start.mono, context.DeadlineExceeded)
	late := &answer{call: k, givenUp: true, err: err}
	k.told = &err
	f.lastErr.Store(k.told)
	f.isDenied = false
	f.traceCall(late, now)
	if k.kind == OpRead {
		f.reads.Failed(k.start.mono, f.urgent(now))
	}
	f.owner.answered(late, now)
}

// tellLate reports the error with which an abandoned call has returned: the reason why it took so long.
func (f *follower) tellLate(a *answer, now instant) {
	if a.err == nil || f.winding || errors.Is(a.err, ErrLostRace) {
		return
	}
	f.calls.Explain(now.mono, "the store operation that was given up has failed", "op", string(a.kind), "took", now.mono-a.start.mono, "err", a.err)
	why := fmt.Errorf("%w: %w", *a.told, a.err)
	f.lastErr.CompareAndSwap(a.told, &why)
}

// lastError returns the error of the last store call, or nil if it worked.
func (f *follower) lastError() error {
	if err := f.lastErr.Load(); err != nil {
		return *err
	}
	return nil
}

// because returns cause, which ends a campaign or an observer, with the error of the last store
// call in its text. It wraps only cause: the store's error may wrap other ctx errors, which must
// not look like the cause.
func (f *follower) because(cause error) error {
	last := f.lastError()
	if k := f.call; last == nil && k != nil && !f.worked {
		last = fmt.Errorf("leaderelection: %s at %s: no answer yet", k.kind, f.knownPlace())
	}
	if last == nil {
		return cause
	}
	return fmt.Errorf("%w; the store's last error: %v", cause, last)
}

// mayCall reports whether a call can be made now. If not, it sets wake for the next look.
func (f *follower) mayCall(wake *alarm) bool {
	if f.call != nil {
		wake.at(f.call.deadline)
		return false
	}
	if until := f.notBefore(); wake.now.mono < until {
		wake.at(until)
		return false
	}
	if f.hanging < maxAbandoned {
		return true
	}
	if wake.now.mono >= f.sayBlocked {
		f.sayBlocked = wake.now.mono + time.Minute
		f.log(slog.LevelWarn, "calls to the store do not return, though their ctx has ended; none is made before one returns", "hanging", f.hanging, "for", wake.now.mono-f.lastCall)
	}
	wake.at(f.sayBlocked) // a call that returns wakes the loop
	return false
}

// read makes a read at the elapsed time due, or as soon after it as earlier failures allow.
func (f *follower) read(wake *alarm, due time.Duration) {
	due = max(due, f.reads.NotBefore)
	if wake.now.mono < due {
		wake.at(due)
		return
	}
	f.begin(wake.now, OpRead, nil, nil)
	wake.at(f.call.deadline)
}

// notify calls a hook of Trace, if it has that one, without waiting for it.
func notify[E any](f *follower, hook func(E), e E) {
	if hook != nil {
		f.events.Add(func() { hook(e) })
	}
}

// tellEntry calls a hook of Trace with a copy of a record.
func (f *follower) tellEntry(hook func(RaceEntry), e *RaceEntry) {
	if hook != nil {
		notify(f, hook, *e.Clone())
	}
}

func (f *follower) traceCall(a *answer, now instant) {
	took := now.mono - a.start.mono
	op := StoreOp{Kind: a.kind, Start: a.start.wall, Duration: took, Abandoned: a.abandoned, Err: a.err}
	if e := a.got; e != nil {
		op.Number, op.CommitTS = e.ElectionNumber, commitTS(e.Token)
	} else if a.entry != nil {
		op.Number, op.CommitTS = a.entry.ElectionNumber, commitTS(a.token)
	}
	notify(f, f.trace.StoreOp, op)
	args := []any{"op", string(a.kind), "took", took}
	if a.err != nil {
		args = append(args, "err", a.err)
	}
	switch {
	case a.err == nil, errors.Is(a.err, ErrLostRace):
		f.log(slog.LevelDebug, "store operation", args...)
		f.calls.Worked(now.mono, a.kind.does())
	case f.winding && errors.Is(a.err, context.Canceled):
		f.log(slog.LevelDebug, "store operation, not awaited, because the campaign or the watch has ended", args...)
	case errors.Is(a.err, ErrPermanent): // whether it is tried again depends on what has worked before
		f.calls.Failed(now.mono, a.kind.does(), "a store operation failed", args...)
	default:
		f.calls.Failed(now.mono, a.kind.does(), "a store operation failed; it will be tried again", args...)
	}
}

// does says whether an operation reads or writes. That one of the two works does not show that the
// other does.
func (k OpKind) does() string {
	if k == OpRead {
		return "read"
	}
	return "write"
}

// log writes to the Logger, without waiting for it.
func (f *follower) log(level slog.Level, msg string, args ...any) {
	l, at := f.logger, f.now().wall
	if l == nil {
		if level < slog.LevelWarn {
			return
		}
		l = slog.Default()
	}
	f.events.Add(func() {
		if !l.Enabled(f.ctx, level) {
			return
		}
		r := slog.NewRecord(at, level, "leaderelection: "+msg, 0)
		r.Add(args...)
		_ = l.Handler().Handle(f.ctx, r)
	})
}

// wind tells all calls and the feed to end. It reports whether they have ended and all events are
// told.
func (f *follower) wind() bool {
	f.winding = true
	if f.call != nil {
		f.call.cancel()
	}
	if f.feedSession != nil {
		f.feedSession.cancel()
	}
	return f.call == nil && f.hanging == 0 && !f.feedRunning && !f.events.Busy()
}
