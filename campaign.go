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

// Campaign is a running candidate, made by [Config.Start]. Use it to ask about the leadership,
// or to give it up. Its methods may be called by any number of goroutines at once.
type Campaign struct {
	// One goroutine owns the state. Everything that happens elsewhere (a store's answer, a
	// pushed record, a callback's return) reaches it as an event. It handles the events one at
	// a time. Then it computes again what is due, does it, and sleeps until the next moment
	// at which something can be due. It never waits for the store or for user code.

	cfg      Config
	start    context.Context
	single   single
	observer *observer // nil: it is a candidate
	l        *lease

	*timekeeper
	mailbox loop.Mailbox[event]
	events  loop.Calls // of Trace and Logger
	storeCalls
	feedState

	view   atomic.Pointer[TimeView] // of the newest leadership
	leader atomic.Pointer[RaceEntry]
	status atomic.Int32
	done   chan struct{}
	err    error // why it stopped; set before done is closed

	// The loop's own:
	leadership *leadership   // the current one, until its callbacks have returned
	last       *leadership   // the one before
	idleSince  time.Duration // when the last leadership's callbacks had returned
	cooldown   time.Duration // no campaign before this
	wroteAt    time.Duration // when a write last returned, or was given up
	reread     bool          // the lease has asked for a read since the last write
	health     health
	clock      clockCheck
	trouble    time.Duration // when a store call last failed or was slow, while leading
	changed    deliveries    // LeaderChanged
	diagnosis  diagnosis
	refused    refusals
	proofs     proofs
	resigners  []chan error
	asks       []leadAsked   // those who wait in Lead
	slice      time.Duration // the longest a leader sleeps

	stopping bool
	waiting  bool // said already: a callback does not return
	stopAt   time.Duration
	ending   bool // all is done but for goroutines on their way out
	endBy    time.Duration
}

// newCampaign returns a campaign, which begins with its loop. cfg is valid and has its defaults.
func newCampaign(ctx context.Context, cfg Config, hold time.Duration, s single) *Campaign {
	c := &Campaign{cfg: cfg, start: ctx, single: s, done: make(chan struct{}), timekeeper: newTimekeeper(cfg.Clock), l: newLease(cfg.policy(hold))}
	if !c.System {
		c.mailbox.Clock = cfg.Clock
	}
	c.ctx = context.WithoutCancel(ctx)
	c.events = loop.Calls{Limit: maxEvents, Idle: func() { c.post(nothing) }}
	c.changed = deliveries{Calls: loop.Calls{Limit: maxWaiting, Idle: c.events.Idle}, ctx: c.ctx}
	c.pollEvery, c.timeout = cfg.PollInterval, min(max(cfg.TermLength/4, minInterval), maxCall)
	c.reads = loop.NewRetry(cfg.LeaderID, cfg.PollInterval, cfg.TermLength)
	c.writes, c.feeds = c.reads, c.reads
	c.writes.Limit, c.writes.Seed = max(c.reads.Limit, 4*c.reads.Base), c.reads.Seed+1
	c.feeds.Limit = max(c.reads.Limit, cfg.TermLength)
	c.outage = loop.Outage{To: c.log, Over: "the store is back"}
	c.feed, _ = cfg.Decider.(ChangeFeed)
	c.feedFails = loop.Outage{To: c.log, Over: "the feed delivers", Once: true} // a store that cannot push is polled for good
	c.diagnosis.c, c.health.c, c.proofs.c, c.clock.c = c, c, c, c
	c.clock.bounded, _ = cfg.Clock.(clocks.Bounded)
	c.view.Store(newView(c.timekeeper, NoElections))
	return c
}

// View returns the view of the current leadership, or a view that is over if this candidate
// does not lead. Use it to ask before each act whether this candidate leads. A later leadership has
// another view: call View again. Never nil.
func (c *Campaign) View() *TimeView { return c.view.Load() }

// Leader returns the newest record that the campaign knows, without its Token. It may be its own.
// Use it to tell clients which candidate leads. It is a zero RaceEntry while nothing is known
// yet. It may be out of date: ask View whether this candidate leads.
func (c *Campaign) Leader() RaceEntry {
	e := c.leader.Load()
	if e == nil {
		return RaceEntry{}
	}
	known := *e.Clone()
	known.Token = nil
	return known
}

// Status returns what the campaign is doing, for display and probes. Before an act ask View.
func (c *Campaign) Status() Status { return Status(c.status.Load()) }

// LastError returns the error of the last store call, or nil if that call worked.
func (c *Campaign) LastError() error { return c.lastError() }

// Done returns a channel that is closed when the campaign has stopped and every callback has
// returned.
func (c *Campaign) Done() <-chan struct{} { return c.done }

// Wait waits until the campaign has stopped and every callback has returned. It returns what
// [Config.Acquire] would.
func (c *Campaign) Wait() error {
	<-c.done
	return c.err
}

// ask posts an event to the loop, and waits for the answer to it, or until the campaign has stopped.
func (c *Campaign) ask(ctx context.Context, e event, answer <-chan error) error {
	select {
	case <-c.done:
		return nil
	default:
	}
	c.post(e)
	select {
	case err := <-answer:
		return err
	case <-c.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Ping reports whether the campaign works. If it does not, only a new process helps. Use it for
// a liveness probe; package lehttp has one.
//
// Ping returns nil as soon as the campaign's loop has noticed it, within microseconds on an
// idle machine, or when the campaign has stopped. It returns context.Cause(ctx) if ctx ends
// first. The loop waits neither for the store nor for user code except the Clock. So a campaign
// that does not answer for seconds, on a machine that is not starved, is stuck for good.
//
// Ping returns an error if LeaderChanged has not returned for four terms. It also returns one
// if the store has answered every call with an ErrPermanent for as long: the process's
// certificate or token for the store may have been renewed since it started. So it does if
// calls that ignore the end of their ctx have kept the candidate from asking for as long. Ping
// says nothing else of the store.
func (c *Campaign) Ping(ctx context.Context) error {
	noticed := make(chan error, 1)
	return c.ask(ctx, func(now instant) { noticed <- c.stuck(now) }, noticed)
}

// stuckTerms is for how many terms a fault may last that should pass by itself.
const stuckTerms = 4

// stuck returns why only a new process helps, or nil.
func (c *Campaign) stuck(now instant) error {
	limit := now.mono - stuckTerms*c.cfg.TermLength
	if since, running := c.changed.Look(now.mono); running && since < limit {
		return fmt.Errorf("leaderelection: LeaderChanged has not returned for %v", (now.mono - since).Round(time.Second))
	}
	if c.hanging >= maxAbandoned && c.lastCall < limit {
		return fmt.Errorf("leaderelection: for %v no call to the store has returned, though their ctx has ended: the RaceDecider must return then", (now.mono - c.lastCall).Round(time.Second))
	}
	if c.isDenied && c.denied < limit {
		return fmt.Errorf("leaderelection: for %v the store has refused every call: %w", (now.mono - c.denied).Round(time.Second), c.lastError())
	}
	return nil
}

// loop is the campaign, from its beginning to its end, in one goroutine.
func (c *Campaign) loop() {
	defer close(c.done)
	defer c.mailbox.Close()
	defer c.proofs.end()
	defer c.abandon()
	if c.observer == nil {
		c.log(slog.LevelInfo, "campaign started", "id", c.cfg.LeaderID, "place", firstPlace{c}, "term", c.cfg.TermLength, "skew", c.cfg.MaxClockSkew, "pushed", c.feed != nil)
	}
	c.slice = maxSlice
	if stop, err := clocks.NotifyJump(c.cfg.Clock, func() { c.post(nothing) }); err == nil && stop != nil {
		if c.System {
			c.slice = maxTellingSlice
		}
		defer stop()
	}
	awaken := context.AfterFunc(c.start, func() { c.post(nothing) })
	defer awaken()
	for {
		c.handle()
		now := c.now()
		wake, stopped := c.step(now)
		if stopped {
			return
		}
		c.sleep(now, wake)
	}
}

// errNoLoop is the cause of the end of a leadership whose campaign has lost its loop.
var errNoLoop = errors.New("leaderelection: a Clock, LeaderToken or Lifeline has panicked in the campaign's loop, or ended its goroutine")

// abandon ends everything if the loop has not come to its end. That is user code's doing, and who called
// Acquire may recover from its panic.
func (c *Campaign) abandon() {
	if c.ending {
		return
	}
	c.err = errNoLoop
	if r := c.leadership; r != nil {
		r.view.end()
		r.cancel(errNoLoop)
		if r.ousting != nil {
			r.ousting()
		}
	}
	c.wind()
}

// sleep returns after d, or when something has happened. A leader sleeps in slices, and looks at
// both its clocks after each. Timers do not notice that the machine was suspended or the clock
// was stepped, so less of d may be left.
func (c *Campaign) sleep(begin instant, d time.Duration) {
	if c.leadership == nil && !c.l.measuring(begin) {
		c.mailbox.Sleep(d, nil)
		return
	}
	now := begin
	late := func() bool { return c.now().mono-now.mono > maxLate }
	for left := d; left > 0 && c.mailbox.Sleep(min(left, c.slice), late); {
		now = c.now()
		passed := now.mono - begin.mono
		if (now.wall.Sub(begin.wall)-passed).Abs() > maxApart || c.View().latched() {
			return
		}
		left = d - passed
	}
}

// step brings everything up to date with now, and does what is due. It returns for how long
// nothing else can become due.
func (c *Campaign) step(now instant) (time.Duration, bool) {
	wake := newAlarm(now)
	if !c.stopping && c.start.Err() != nil {
		c.stop(now, context.Cause(c.start))
		c.err = c.because(c.err)
	}
	if c.failure != nil && !c.stopping {
		c.stop(now, c.failure)
	}
	c.l.look(now)
	c.changed.Look(now.mono)
	c.clock.tend(&wake)
	c.follow(now)
	c.tendLeadership(&wake)
	c.giveUpCall(now)
	if c.ending {
		return c.end(&wake)
	}
	c.single.tend(c, &wake)
	if !c.single.looking() || c.leadership != nil {
		c.tendFeed(&wake)
	}
	c.health.tend(&wake, c.stopping)
	if r := c.leadership; c.health.sick && r != nil && r.cause == nil {
		c.giveUp(now, ErrUnhealthy)
		wake.at(now.mono) // for tendLeadership
	}
	c.act(&wake)
	c.answerResigners(&wake)
	c.report(now)
	if !c.stopping {
		return wake.in, false
	}
	for _, asked := range c.asks {
		asked <- leadAnswer{err: c.err}
	}
	c.asks = nil
	if !c.finished(&wake) {
		return wake.in, false
	}
	c.ending, c.endBy = true, now.mono+100*time.Millisecond
	c.report(now)
	return c.end(&wake)
}

// leaveTime is for how long a campaign that ends tries to release its record, or to learn
// whether it has won, after its callbacks have returned. It is well within the half minute
// that supervisors wait before they kill. After it the term runs out by itself. A record that
// is kept while it is quiet is not released.
const leaveTime = 10 * time.Second

// stop begins the campaign's end: what is led is drained and released.
func (c *Campaign) stop(now instant, cause error) {
	c.stopping, c.stopAt, c.err = true, now.mono, cause
	c.timeout = min(c.timeout, leaveTime/2) // so that a call that hangs is not the only one
	if k := c.call; k != nil {
		k.deadline = min(k.deadline, now.mono+c.timeout)
	}
	c.reads.Worked() // no pause of the time before is so long that nothing can be released
	c.writes.Worked()
	if c.leadership != nil {
		c.giveUp(now, cause)
	}
	if c.observer != nil {
		c.changed.Drop()
	}
}

// finished reports whether a stopping campaign has nothing left to do. It has no leadership, and the record
// cannot be its own. It waits for that no longer than leaveTime, or half a term if it has not led.
func (c *Campaign) finished(wake *alarm) bool {
	if k := c.health.check; k != nil {
		k.cancel()
		c.waits(wake, "Healthy")
		return false
	}
	if c.leadership != nil { // DrainTimeout bounds it
		return false
	}
	if c.changed.Busy() {
		c.waits(wake, "LeaderChanged")
		return false
	}
	if !c.l.holds(wake.now) || c.lost() {
		return true
	}
	patience := c.cfg.TermLength / 2
	if c.owns() {
		patience = c.cfg.TermLength
	}
	until := max(c.stopAt, c.idleSince) + min(patience, leaveTime)
	wake.at(until)
	return wake.now.mono >= until
}

// lost reports whether the last write will not land any more: its call has returned, and a read that began some time
// after that has not shown it. A read that comes at once may be stale.
func (c *Campaign) lost() bool {
	return c.call == nil && c.hanging == 0 && !c.l.unsure && !c.owns() && c.l.at.mono >= c.wroteAt+c.reads.Base
}

// waits logs, once, that a campaign cannot end before a callback returns.
func (c *Campaign) waits(wake *alarm, what string) {
	if due := max(c.stopAt, c.idleSince) + leaveTime; wake.now.mono < due {
		wake.at(due)
	} else if !c.waiting {
		c.waiting = true
		c.log(slog.LevelWarn, "the campaign has ended, except for a callback that does not return: Wait waits for it", "id", c.cfg.LeaderID, "runs", what)
	}
}

// end waits a moment for goroutines that have been told to end. So a caller may close its
// store's client when Wait has returned. A goroutine that does not end is left behind.
func (c *Campaign) end(wake *alarm) (time.Duration, bool) {
	if c.wind() || wake.now.mono >= c.endBy {
		return 0, true
	}
	wake.at(c.endBy)
	return wake.in, false
}
