package leaderelection

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/skew"
)

// Campaign is a running candidate, made by [Config.Start]. Its methods may be
// called by any number of goroutines at once.
//
// One goroutine owns its state. Whatever happens elsewhere (a store's answer, a
// pushed record, a callback's return) reaches it as an event; it handles them one at a
// time, then works out afresh what is due, does it, and sleeps until the next moment at
// which something can be due. Nothing that it does waits for the store or for
// user code.
type Campaign struct {
	cfg         Config
	incarnation string
	start       context.Context
	single      *single // nil: it leads as often as it wins
	f           follower
	k           knowledge

	tenure atomic.Pointer[tenure]
	leader atomic.Pointer[RaceEntry]
	status atomic.Int32
	done   chan struct{}
	err    error // why it stopped; set before done is closed

	// The loop's own:
	leadership *leadership // the current one, until its callbacks have returned
	last       *leadership // the one before
	attempts   attempts
	maxSeen    ElectionNumber // greatest ElectionNumber ever seen
	idleSince  time.Duration  // when the last leadership's callbacks had returned
	cooldown   time.Duration  // no campaign before this
	writes     retry
	health     health
	clock      clockCheck
	standing   standing
	trouble    time.Duration // when a store call last failed or was slow, while leading
	changed    deliveries    // LeaderChanged
	told       *RaceEntry    // the last record handed to LeaderChanged
	doubles    double
	refused    refusals
	resigners  []chan struct{}
	slice      time.Duration // the longest a leader sleeps

	stopping bool
	stopAt   time.Duration
	ending   bool // all is done but for goroutines on their way out
	endBy    time.Duration
}

// start begins a campaign. cfg is valid and has its defaults.
func start(ctx context.Context, cfg Config, s *single) *Campaign {
	c := &Campaign{cfg: cfg, incarnation: newIncarnation(), start: ctx, single: s, done: make(chan struct{})}
	f := &c.f
	f.init(ctx, cfg.Clock, cfg.Decider, cfg.LeaderID, cfg.TermLength)
	f.poll, f.logger, f.trace = cfg.PollInterval, cfg.Logger, cfg.Trace
	c.k = knowledge{skew: cfg.MaxClockSkew, term: cfg.TermLength, unsynchronized: cfg.Unsynchronized}
	c.attempts.incarnation = c.incarnation
	f.reads.within(f.poll)
	c.clock.bounded, _ = cfg.Clock.(clocks.Bounded)
	c.clock.check = skew.New(cfg.MaxClockSkew, proofTerms*cfg.TermLength, f.epoch)
	_, c.writes = backoffs(cfg.LeaderID, cfg.TermLength)
	c.changed = deliveries{ctx: context.WithoutCancel(ctx), call: cfg.LeaderChanged, idle: f.events.idle}
	c.tenure.Store(&tenure{view: newView(f.timekeeper, NoElections), next: make(chan struct{})})
	f.log(slog.LevelInfo, "standing", "id", cfg.LeaderID, "term", cfg.TermLength, "skew", cfg.MaxClockSkew, "pushed", f.feed != nil)
	go c.loop()
	return c
}

// View returns the view of the current leadership, or while not leading one that is
// over. Never nil. The view of a later leadership is another one: call View again.
func (c *Campaign) View() *TimeView { return c.tenure.Load().view }

// Leader returns the newest record known, also of another's leadership, without its
// Token, or a zero RaceEntry while nothing has been learned yet. It may be out of
// date: whether this candidate leads is for View to say.
func (c *Campaign) Leader() RaceEntry {
	e := c.leader.Load()
	if e == nil {
		return RaceEntry{}
	}
	known := *e.Clone()
	known.Token = nil
	return known
}

// Status returns what the campaign is doing. For whether to act, ask View.
func (c *Campaign) Status() Status { return Status(c.status.Load()) }

// Done is closed when the campaign has stopped and every callback has returned.
func (c *Campaign) Done() <-chan struct{} { return c.done }

// Wait waits for Done, and returns what Acquire would.
func (c *Campaign) Wait() error {
	<-c.done
	return c.err
}

// Resign gives up leadership and cools down for one term, so that somebody else leads
// if anybody can: the leader's ctx is cancelled with ErrResigned, the lease kept
// until the callbacks have returned (for DrainTimeout at most), then released.
// The campaign goes on. Resign returns nil after the release, or when ctx ends
// context.Cause(ctx), the resignation going on without it; so a leader that calls
// it from OnElected with its own ctx does not wait for itself. A candidate that
// does not lead only cools down for its term.
func (c *Campaign) Resign(ctx context.Context) error {
	released := make(chan struct{})
	c.f.post(resignAsked{released})
	select {
	case <-released:
		return nil
	case <-c.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Ping reports whether the campaign's loop moves: it returns nil as soon as the loop has
// taken notice, in microseconds on an idle machine, or when the campaign has stopped; and
// context.Cause(ctx) when ctx ends before. Nothing that the loop does waits for the store
// or for user code but the Clock: so a campaign that does not answer for seconds, on a
// machine that is not starved, is stuck for good, and only a new process helps. It says
// nothing of the store. For liveness probes: package lehttp has one.
func (c *Campaign) Ping(ctx context.Context) error {
	noticed := make(chan struct{})
	c.f.post(pinged{noticed})
	select {
	case <-noticed:
		return nil
	case <-c.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Campaign) resign(now instant, released chan struct{}) {
	c.cooldown = max(c.cooldown, now.mono+c.cfg.TermLength)
	if r := c.leadership; r != nil && r.cause == nil {
		c.giveUp(now, ErrResigned)
	}
	c.resigners = append(c.resigners, released)
}

// answerResigners tells those who wait in Resign once nothing is held, or may be by a
// write whose outcome is open.
func (c *Campaign) answerResigners(wake *alarm) {
	if len(c.resigners) == 0 || c.leadership != nil || c.holds(wake.now) || c.attempts.pending(wake, c.cfg.TermLength) {
		return
	}
	for _, released := range c.resigners {
		close(released)
	}
	c.resigners = nil
}

// loop is the campaign's goroutine.
func (c *Campaign) loop() {
	defer close(c.done)
	defer c.f.close()
	c.slice = maxSlice
	if stop, err := clocks.NotifyJump(c.cfg.Clock, func() { c.f.post(lookAgain{}) }); err == nil && stop != nil {
		c.slice = maxTellingSlice
		defer stop()
	}
	awaken := context.AfterFunc(c.start, func() { c.f.post(lookAgain{}) })
	defer awaken()
	for {
		posted := c.f.take()
		for _, e := range posted {
			c.handle(e, c.f.now())
		}
		clear(posted)
		now := c.f.now()
		wake, stopped := c.step(now)
		if stopped {
			return
		}
		c.sleep(now, wake)
	}
}

// handle takes in one event, at the instant now.
func (c *Campaign) handle(e event, now instant) {
	switch e := e.(type) {
	case *answer:
		c.f.settle(e, now)
		c.answered(e, now)
	case pushed:
		c.f.delivered(e, c.k.latest, now)
		c.learn(e.entry, now, now, wasPushed)
	case feedEnded:
		c.f.feedGone(e, now)
	case healthAnswered:
		c.healthAnswered(e, now)
	case callbackDone:
		e.of.callbacks--
	case resignAsked:
		c.resign(now, e.released)
	case pinged:
		close(e.noticed)
	case announced:
		c.cfg.HostPort, c.cfg.ConnectionParams = e.hostPort, e.params
	case lookAgain:
	}
}

// sleep returns after d, or when something has happened. A leader sleeps in
// slices and looks at both its clocks after each, since timers do not notice that
// the machine was suspended or the clock stepped: what was worked out to be d may
// be nearer now.
func (c *Campaign) sleep(begin instant, d time.Duration) {
	if c.leadership == nil && !(c.cfg.Unsynchronized && c.attempts.acquiring()) {
		c.f.mailbox.sleep(c.cfg.Clock, d)
		return
	}
	for left := d; left > 0 && c.f.mailbox.sleep(c.cfg.Clock, min(left, c.slice)); {
		now := c.f.now()
		passed := now.mono - begin.mono
		if (now.wall.Sub(begin.wall)-passed).Abs() > maxApart || c.View().latched() {
			return
		}
		left = d - passed
	}
}

// step brings everything up to date with now, does what is due, and returns how
// long nothing else can become due.
func (c *Campaign) step(now instant) (time.Duration, bool) {
	wake := newAlarm(now)
	if !c.stopping && c.start.Err() != nil {
		c.stop(now, context.Cause(c.start))
	}
	if c.f.failure != nil && !c.stopping {
		c.stop(now, c.f.failure)
	}
	if c.cfg.Unsynchronized {
		c.tighten(now)
	}
	c.tendClock(&wake)
	c.tendLeadership(&wake)
	if late := c.f.giveUpCall(now); late != nil {
		c.answered(late, now)
	}
	c.attempts.forgetOld(&wake, c.cfg.TermLength)
	if c.ending {
		return c.end(&wake)
	}
	c.tendSingle(&wake)
	if !c.single.looking() || c.leadership != nil {
		c.f.tendFeed(&wake)
	}
	c.tendHealth(&wake)
	c.act(&wake)
	c.answerResigners(&wake)
	c.report(now)
	if c.stopping && c.finished(&wake) {
		c.ending, c.endBy = true, now.mono+100*time.Millisecond
		c.report(now)
		return c.end(&wake)
	}
	return wake.in, false
}

// leaveTime is for how long a campaign that ends tries to release what it holds, or to
// learn whether it has won, when nothing of its own is left to wait for: well within
// the half minute that supervisors wait before they kill. After it the term runs out by
// itself. What was taken too early has its time besides (see keepIfEarly): a clock that
// is far ahead has written a TermExpiry that would keep everybody out for as long.
const leaveTime = 10 * time.Second

// stop begins the campaign's end: what is led is drained and released.
func (c *Campaign) stop(now instant, cause error) {
	c.stopping, c.stopAt, c.err = true, now.mono, cause
	c.f.timeout = min(c.f.timeout, leaveTime/2) // so that a call that hangs is not the only one
	if k := c.f.call; k != nil {
		k.deadline = min(k.deadline, now.mono+c.f.timeout)
	}
	if c.leadership != nil {
		c.giveUp(now, cause)
	}
}

// finished reports whether a stopping campaign has nothing left to do: no leadership,
// no record of its own that could be released, and no write whose outcome is open and that
// could have made it one (for that it waits half a term at most).
func (c *Campaign) finished(wake *alarm) bool {
	if k := c.health.check; k != nil {
		k.cancel()
		return false
	}
	if c.leadership != nil || c.changed.busy() {
		return false
	}
	if until := c.stopAt + min(c.cfg.TermLength/2, leaveTime); c.attempts.pending(wake, c.cfg.TermLength) && wake.now.mono < until {
		wake.at(until)
		return false
	}
	if !c.holds(wake.now) {
		return true
	}
	// A term that has run out by the monotonic clock has, whatever was done to the
	// other one.
	until := max(c.stopAt, c.idleSince, c.clock.keepUntil) + min(c.cfg.TermLength, leaveTime)
	wake.at(until)
	wake.until(c.k.ends(c.k.latest))
	return wake.now.mono >= until
}

// end waits a moment for goroutines to go that have been told to, so that a
// caller may close its store's client when Wait has returned. One that does not
// go is left behind.
func (c *Campaign) end(wake *alarm) (time.Duration, bool) {
	if c.f.wind() || wake.now.mono >= c.endBy {
		return 0, true
	}
	wake.at(c.endBy)
	return wake.in, false
}

// act makes the one store call that is due, if any.
func (c *Campaign) act(wake *alarm) {
	if !c.f.mayCall(wake) {
		return
	}
	switch r := c.leadership; {
	case r != nil && !r.over:
		c.hold(wake, r)
	case c.releasing(wake.now):
		c.release(wake)
	case c.stopping:
		if r == nil && c.attempts.pending(wake, c.cfg.TermLength) && c.k.unsure {
			c.f.read(wake, 0)
		}
	default:
		c.campaign(wake)
	}
}

// report publishes the status, where it has changed.
func (c *Campaign) report(now instant) {
	status, cause, number := Following, error(nil), NoElections
	switch r := c.leadership; {
	case c.ending:
		status, cause = Stopped, c.err
	case r != nil && r.cause == nil:
		status, number = Leading, r.number
	case r != nil:
		status, cause, number = Draining, r.cause, r.number
	case c.releasing(now):
		status, number = Draining, c.k.base.ElectionNumber
	}
	from := Status(c.status.Load())
	if from == status {
		return
	}
	if from == Leading && cause == nil {
		// It ended with all its callbacks within one step.
		number, cause = c.last.number, c.last.cause
	}
	c.status.Store(int32(status))
	if t := c.cfg.Trace; t != nil && t.StatusChanged != nil {
		change := StatusChange{From: from, To: status, Cause: cause, Number: number, Time: now.wall}
		c.f.events.add(func() { t.StatusChanged(change) })
	}
	level := slog.LevelInfo
	if errors.Is(cause, ErrOusted) || errors.Is(cause, ErrExpired) {
		level = slog.LevelWarn
	}
	if cause != nil {
		c.f.log(level, status.String(), "id", c.cfg.LeaderID, "was", from.String(), "election", uint64(number), "cause", cause)
	} else {
		c.f.log(level, status.String(), "id", c.cfg.LeaderID, "was", from.String(), "election", uint64(number))
	}
}
