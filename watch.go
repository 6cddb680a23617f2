package leaderelection

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/log/durations"
)

// WatchConfig describes an observer, which follows an election without taking part. Set
// Decider and call [WatchConfig.Watch]. Use it to learn which candidate leads.
type WatchConfig struct {
	// Decider has the record to follow. Required. Only its ReadCurrent is used, and its
	// ChangeFeed if it has one.
	Decider RaceDecider

	// MaxClockSkew bounds how far this machine's clock, or a leader's, may be from true time.
	// Set it as in the candidates' Config. It delays Lapsed. Zero means 1 s. More than a
	// year counts as a year.
	MaxClockSkew time.Duration

	// ClockPolicy is as in the candidates' Config. Here only SharedClock matters: it means
	// that there is no skew.
	ClockPolicy ClockPolicy

	// PollInterval is how often the record is read if the store cannot push changes, or its
	// feed has failed. Zero means half of the term that the record names: two reads a term.
	PollInterval time.Duration

	// Lapsed is called when the term of entry has run out without an extension. Before the
	// call, the record was read again at TermExpiry plus MaxClockSkew or later (by up to a
	// twentieth of the term, a second at most, so that many observers spread their reads), and was
	// still the same. (If entry is Unsynchronized, it was read again after it had not been
	// seen to change for a term and the allowance for drift.) A leader that comes back
	// afterwards is a new record. Calls are in order with those of the callback given to
	// Watch. Optional.
	Lapsed func(ctx context.Context, entry RaceEntry)

	// Clock, Logger and Trace are as in Config. All optional.
	Clock  clocks.Clock
	Logger *slog.Logger
	Trace  *Trace
}

// Watch follows the election until ctx ends, and calls cb for each new record. Use it to tell
// clients which candidate leads.
//
// New are the first record found, and each leadership, extension and vacancy that Watch sees.
// A poll, or a store's feed, may miss one that is soon replaced. Extensions of one leadership
// may be merged while cb is busy. Watch never calls cb twice for the same
// record, nor for an older one. While nobody has led yet, there is no record.
//
// Calls come one at a time and in order, with Watch's ctx. A slow cb delays only later calls.
// If cb is stuck and more than a hundred records wait, the oldest are dropped.
//
// Watch returns context.Cause(ctx), as [Config.Acquire] does, after the last call has returned.
// If the WatchConfig is wrong, it returns an ErrConfig at once. If the store refuses for good
// before anything has worked, it returns an ErrPermanent.
func (w WatchConfig) Watch(ctx context.Context, cb func(ctx context.Context, entry RaceEntry)) error {
	if err := w.validate(cb); err != nil {
		return err
	}
	c := Config{Decider: w.Decider, MaxClockSkew: min(w.ClockPolicy.skew(w.MaxClockSkew), MaxTermLength), ClockPolicy: SharedClock, Clock: w.Clock, Logger: w.Logger, Trace: w.Trace}.withDefaults()
	c.LeaderID = c.Clock.Now().String() // for the jitter alone
	campaign := newCampaign(ctx, c, 0, single{})
	campaign.changed.ctx = ctx
	campaign.observer = &observer{c: campaign, cb: cb, lapse: w.Lapsed, poll: w.PollInterval}
	campaign.observer.setPoll(DefaultTermLength)
	campaign.loop()
	return campaign.err
}

func (w *WatchConfig) validate(cb func(context.Context, RaceEntry)) error {
	var faults []error
	if w.Decider == nil {
		faults = append(faults, errors.New("the Decider is nil: it is the record to follow"))
	}
	if cb == nil {
		faults = append(faults, errors.New("the callback given to Watch is nil"))
	}
	return wrong(append(faults, durations.Fault("MaxClockSkew", w.MaxClockSkew, leastSkew), durations.Fault("PollInterval", w.PollInterval, durations.Least), w.ClockPolicy.fault(w.MaxClockSkew)))
}

// observer is what a campaign has that only looks, and wants to lead never: a Watch. It belongs to the loop, and is nil
// for any other campaign.
type observer struct {
	c      *Campaign
	cb     func(context.Context, RaceEntry)
	lapse  func(context.Context, RaceEntry)
	poll   time.Duration // as configured
	readAt instant       // when the last answered read began
	shown  instant       // the same, of the last read that returned the newest record
	lapsed bool          // Lapsed was called for the newest record
}

// act reads the record if that is due, and reports a lapse.
func (o *observer) act(wake *alarm) {
	c, e := o.c, o.c.l.newest
	pending := e.of != nil && !e.of.Vacant() && !o.lapsed
	var over end // the known term has run out then for all clocks that are within bounds
	if pending {
		over = c.l.claims.end(e)
	}
	if pending && over.reached(o.shown) {
		o.lapsed, pending = true, false
		if o.lapse != nil {
			c.changed.deliver(delivery{entry: e.of, call: o.lapse})
		}
	}
	switch {
	case c.stopping || !c.mayCall(wake):
	case pending && over.reached(wake.now) && !over.reached(o.readAt):
		c.read(wake, c.inTurn(wake.now, e.of, span(c.l.termOf(e.of)))) // and if that is stale, the next poll
	default:
		c.poll(wake)
		if pending {
			wake.until(over)
		}
	}
}

// learn takes in a record, and hands it to the callback if it is new.
func (o *observer) learn(e *RaceEntry, began, now instant, how source) {
	c := o.c
	if c.stopping {
		return
	}
	if e.TermLength > 0 {
		c.l.term = min(e.TermLength, MaxTermLength) // an observer has none of its own
	}
	news := c.l.claims.learn(e, how, false, now)
	if news {
		o.shown, o.lapsed = instant{}, false
	}
	if how == wasRead {
		o.readAt = began
		if n := c.l.newest.of; oneTerm(e, n) && e.Compare(n) == 0 {
			o.shown = began
		}
	}
	c.diagnosis.look(e, &c.l.claims, now, news, how, false)
	if !news {
		return
	}
	c.tellEntry(c.cfg.Trace.News, e)
	if e.ElectionNumber == NoElections {
		return
	}
	if e.TermLength > 0 {
		o.setPoll(e.TermLength)
	}
	c.changed.deliver(delivery{entry: e, call: o.cb, merge: !e.Vacant()})
}

// setPoll fits the observer's pace to the candidates' term.
func (o *observer) setPoll(term time.Duration) {
	c := o.c
	term = min(max(term, 20*time.Millisecond), time.Hour)
	c.pollEvery = term / 2
	if o.poll > 0 {
		c.pollEvery = min(max(o.poll, minPoll), MaxTermLength)
	}
	c.timeout = min(term/4, max(c.pollEvery, time.Second)) // even if a read hangs, look as often as the PollInterval asks
	c.reads.StandBy(c.pollEvery, term)
}
