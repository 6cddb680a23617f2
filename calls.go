package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection/internal/loop"
)

// maxAbandoned is how many abandoned calls that ignore the end of their ctx may hang. Further calls
// wait until one of them returns: a store that hangs must not pile up goroutines.
const maxAbandoned = 4

// storeCalls is what a campaign knows of its calls to the store. It makes at most one at a time. Their results reach
// the loop as events.
type storeCalls struct {
	urgency
	place     atomic.Pointer[string] // see askPlace
	pollEvery time.Duration
	timeout   time.Duration   // of one store call
	ctx       context.Context // of store calls and feeds: the caller's values, without its end
	winding   bool            // calls and feed are told to end

	call      *call                 // the one in flight
	hanging   int                   // abandoned calls that have not returned
	worked    bool                  // some read has succeeded, or the feed has delivered
	written   bool                  // the store has taken a write, or refused one as a lost race
	placed    bool                  // tellPlace has been called
	failure   error                 // an ErrPermanent of a read or write, before any had worked
	lastErr   atomic.Pointer[error] // of the last call, if it failed
	denied    time.Duration         // since when all calls have ended with an ErrPermanent
	isDenied  bool
	outage    loop.Outage
	reads     loop.Retry
	writes    loop.Retry
	lastCall  time.Duration // when the last call began
	lastRead  time.Duration // and the last read
	everAsked bool
	awaited   *RaceEntry    // the state of the record for which inTurn has set turnAt
	turnAt    time.Duration // see inTurn

	sayBlocked time.Duration // when to say next that calls hang
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

// maxCall is how long a store call, or Healthy, may take if terms are long. No store answers so
// late, and a call that hangs must not keep a candidate from the next one for hours.
const maxCall = 30 * time.Second

// begin makes a store call, in its own goroutine. A write puts entry over over, which its answer
// keeps.
func (c *Campaign) begin(now instant, kind OpKind, entry, over *RaceEntry) {
	ctx, cancel := context.WithCancel(c.ctx)
	k := &call{kind: kind, entry: entry, over: over, start: now, deadline: now.mono + c.timeout, cancel: cancel}
	c.call, c.lastCall = k, now.mono
	if kind == OpRead {
		c.lastRead, c.everAsked = now.mono, true
		if c.pollEvery >= loop.MinPause {
			c.reads.Began(now.mono)
		}
	}
	a := &answer{call: k, err: errGoexit}
	loop.Go(func() {
		c.askPlace()
		if k.kind == OpRead {
			a.got, a.err = readCurrent(ctx, c.cfg.Decider)
		} else {
			a.token, a.err = writeEntry(ctx, c.cfg.Decider, k.entry)
		}
	}, func() {
		cancel()
		c.post(func(now instant) {
			c.settle(a, now)
			c.answered(a, now)
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
	e = e.Clone() // the decider may use its own again
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
	token, err := d.WriteEntry(ctx, e.Clone())
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
func (c *Campaign) settle(a *answer, now instant) {
	if a.abandoned {
		c.hanging--
		c.tellLate(a, now)
	} else {
		c.call = nil
		c.traceCall(a, now)
	}
	c.respect(a, now)
	worked := &c.written
	if a.kind == OpRead {
		worked = &c.worked
	}
	if permanent := errors.Is(a.err, ErrPermanent); !permanent {
		c.isDenied = false
	} else if !c.isDenied {
		c.isDenied, c.denied = true, now.mono
	}
	switch {
	case a.err == nil || errors.Is(a.err, ErrLostRace):
		*worked = true
		c.lastErr.Store(nil)
		c.tellPlace()
	case errors.Is(a.err, ErrPermanent) && !*worked && c.failure == nil && (!errors.Is(a.err, ErrDenied) || now.mono-c.denied >= c.cfg.TermLength):
		c.failure = a.err
	}
	if a.err != nil && !errors.Is(a.err, ErrLostRace) && !c.winding && !a.abandoned {
		c.lastErr.Store(&a.err)
	}
	switch {
	case a.kind != OpRead || a.abandoned:
	case a.err != nil:
		c.reads.Failed(a.start.mono, c.urgent(now))
	default:
		c.reads.Worked()
	}
}

// giveUpCall abandons the call in flight if its time is over, and tells the owner.
func (c *Campaign) giveUpCall(now instant) {
	k := c.call
	if k == nil || now.mono < k.deadline {
		return
	}
	k.abandoned = true
	k.cancel()
	c.call = nil
	c.hanging++
	err := fmt.Errorf("leaderelection: %s at %s: no answer within %v: %w", k.kind, c.knownPlace(), k.deadline-k.start.mono, context.DeadlineExceeded)
	late := &answer{call: k, givenUp: true, err: err}
	k.told = &err
	c.lastErr.Store(k.told)
	c.isDenied = false
	c.traceCall(late, now)
	if k.kind == OpRead {
		c.reads.Failed(k.start.mono, c.urgent(now))
	}
	c.answered(late, now)
}

// tellLate reports the error with which an abandoned call has returned: the reason why it took so long.
func (c *Campaign) tellLate(a *answer, now instant) {
	if a.err == nil || c.winding || errors.Is(a.err, ErrLostRace) {
		return
	}
	c.outage.Explain(now.mono, "the store operation that was given up has failed", "op", string(a.kind), "took", now.mono-a.start.mono, "err", a.err)
	why := fmt.Errorf("%w: %w", *a.told, a.err)
	c.lastErr.CompareAndSwap(a.told, &why)
}

// lastError returns the error of the last store call, or nil if it worked.
func (c *Campaign) lastError() error {
	if err := c.lastErr.Load(); err != nil {
		return *err
	}
	return nil
}

// because returns cause, which ends a campaign or an observer, with the error of the last store
// call in its text. It wraps only cause: the store's error may wrap other ctx errors, which must
// not look like the cause.
func (c *Campaign) because(cause error) error {
	last := c.lastError()
	if k := c.call; last == nil && k != nil && !c.worked {
		last = fmt.Errorf("leaderelection: %s at %s: no answer yet", k.kind, c.knownPlace())
	}
	if last == nil {
		return cause
	}
	return fmt.Errorf("%w; the store's last error: %v", cause, last)
}

// mayCall reports whether a call can be made now. If not, it sets wake for the next look.
func (c *Campaign) mayCall(wake *alarm) bool {
	if c.call != nil {
		wake.at(c.call.deadline)
		return false
	}
	if until := c.notBefore(); wake.now.mono < until {
		wake.at(until)
		return false
	}
	if c.hanging < maxAbandoned {
		return true
	}
	if wake.now.mono >= c.sayBlocked {
		c.sayBlocked = wake.now.mono + time.Minute
		c.log(slog.LevelWarn, "calls to the store do not return, though their ctx has ended; none is made before one returns", "hanging", c.hanging, "for", wake.now.mono-c.lastCall)
	}
	wake.at(c.sayBlocked) // a call that returns wakes the loop
	return false
}

// read makes a read at the elapsed time due, or as soon after it as earlier failures allow.
func (c *Campaign) read(wake *alarm, due time.Duration) {
	due = max(due, c.reads.NotBefore)
	if wake.now.mono < due {
		wake.at(due)
		return
	}
	c.begin(wake.now, OpRead, nil, nil)
	wake.at(c.call.deadline)
}

// notify calls a hook of Trace, if it has that one, without waiting for it.
func notify[E any](c *Campaign, hook func(E), e E) {
	if hook != nil {
		c.events.Add(func() { hook(e) })
	}
}

// tellEntry calls a hook of Trace with a copy of a record.
func (c *Campaign) tellEntry(hook func(RaceEntry), e *RaceEntry) {
	if hook != nil {
		notify(c, hook, *e.Clone())
	}
}

func (c *Campaign) traceCall(a *answer, now instant) {
	took := now.mono - a.start.mono
	op := StoreOp{Kind: a.kind, Start: a.start.wall, Duration: took, Abandoned: a.abandoned, Err: a.err}
	if e := a.got; e != nil {
		op.Number, op.CommitTS = e.ElectionNumber, commitTS(e.Token)
	} else if a.entry != nil {
		op.Number, op.CommitTS = a.entry.ElectionNumber, commitTS(a.token)
	}
	notify(c, c.cfg.Trace.StoreOp, op)
	args := []any{"op", string(a.kind), "took", took}
	if a.err != nil {
		args = append(args, "err", a.err)
	}
	switch {
	case a.err == nil, errors.Is(a.err, ErrLostRace):
		c.log(slog.LevelDebug, "store operation", args...)
		c.outage.Worked(now.mono, a.kind.does())
	case c.winding && errors.Is(a.err, context.Canceled):
		c.log(slog.LevelDebug, "store operation, not awaited, because the campaign or the watch has ended", args...)
	case errors.Is(a.err, ErrPermanent): // whether it is tried again depends on what has worked before
		c.outage.Failed(now.mono, a.kind.does(), "a store operation failed", args...)
	default:
		c.outage.Failed(now.mono, a.kind.does(), "a store operation failed; it will be tried again", args...)
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
func (c *Campaign) log(level slog.Level, msg string, args ...any) {
	l, at := c.cfg.Logger, c.now().wall
	if l == nil {
		if level < slog.LevelWarn {
			return
		}
		l = slog.Default()
	}
	c.events.Add(func() {
		if !l.Enabled(c.ctx, level) {
			return
		}
		r := slog.NewRecord(at, level, "leaderelection: "+msg, 0)
		r.Add(args...)
		_ = l.Handler().Handle(c.ctx, r)
	})
}

// wind tells all calls and the feed to end. It reports whether they have ended and all events are
// told.
func (c *Campaign) wind() bool {
	c.winding = true
	if c.call != nil {
		c.call.cancel()
	}
	if c.feedSession != nil {
		c.feedSession.cancel()
	}
	return c.call == nil && c.hanging == 0 && !c.feedRunning && !c.events.Busy()
}
