package leaderelection

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/log/durations"
	"github.com/c8e606e4/leaderelection/internal/loop"
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
	if w.Clock == nil {
		w.Clock = clocks.System()
	}
	w.MaxClockSkew = min(w.ClockPolicy.skew(w.MaxClockSkew), MaxTermLength)
	o := &observer{cfg: w, parent: ctx, cb: cb}
	f := &o.f
	f.init(ctx, w.Clock, w.Decider, w.Clock.Now().String(), DefaultTermLength/2, DefaultTermLength)
	f.logger, f.trace = w.Logger, w.Trace
	o.k = claims{policy: &policy{term: DefaultTermLength, skew: w.MaxClockSkew}, longest: DefaultTermLength}
	f.owner, f.known = o, &o.k
	o.diagnosis = diagnosis{f: f}
	o.setPoll(DefaultTermLength)
	o.out = deliveries{Calls: loop.Calls{Limit: maxWaiting, Idle: f.events.Idle}, ctx: ctx}
	return o.loop()
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

// observer is a running Watch.
type observer struct {
	cfg       WatchConfig
	parent    context.Context
	cb        func(context.Context, RaceEntry)
	f         follower
	k         claims
	readAt    instant // when the last answered read began
	shown     instant // the same, of the last read that returned the newest record
	diagnosis diagnosis
	out       deliveries
	lapsed    bool // Lapsed was called for the newest record
	ending    bool
	endBy     time.Duration
	err       error
}

// loop runs in Watch's own goroutine.
func (o *observer) loop() error {
	awaken := context.AfterFunc(o.parent, func() { o.f.post(nothing) })
	defer awaken()
	defer o.f.mailbox.Close()
	for {
		o.f.handle()
		wake, stopped := o.step(o.f.now())
		if stopped {
			return o.err
		}
		o.f.mailbox.Sleep(wake, nil)
	}
}

// answered takes in the answer to a read, or that it was given up.
func (o *observer) answered(a *answer, now instant) {
	switch {
	case a.err != nil:
	case a.abandoned:
		o.learn(a.got, a.start, now, wasPushed)
	default:
		o.f.feedCheck(a.got, now)
		o.learn(a.got, a.start, now, wasRead)
	}
}

// step does what is due, and returns for how long nothing else can become due.
func (o *observer) step(now instant) (time.Duration, bool) {
	wake := newAlarm(now)
	f := &o.f
	f.giveUpCall(now)
	if !o.ending {
		switch {
		case o.parent.Err() != nil:
			o.end(now, f.because(context.Cause(o.parent)))
		case f.failure != nil:
			o.end(now, f.failure)
		}
	}
	if o.ending {
		gone := f.wind()
		if !o.out.Busy() && (gone || now.mono >= o.endBy) {
			return 0, true
		}
		if now.mono < o.endBy {
			wake.at(o.endBy)
		}
		return wake.in, false
	}
	f.tendFeed(&wake)
	o.act(&wake)
	return wake.in, false
}

// end begins the observer's end. Records that still wait for a callback are dropped.
func (o *observer) end(now instant, err error) {
	o.ending, o.err, o.endBy = true, err, now.mono+100*time.Millisecond
	o.out.Drop()
}

// act reads the record if that is due, and reports a lapse.
func (o *observer) act(wake *alarm) {
	f := &o.f
	lapse, pending := o.lapseAt()
	if pending && lapse.reached(o.shown) {
		o.lapsed, pending = true, false
		if o.cfg.Lapsed != nil {
			o.out.deliver(delivery{entry: o.k.newest.of, call: o.cfg.Lapsed})
		}
	}
	if !f.mayCall(wake) {
		return
	}
	if pending && lapse.reached(wake.now) && !lapse.reached(o.readAt) {
		f.read(wake, f.turn(wake.now, o.k.newest.of, span(o.k.termOf(o.k.newest.of)))) // and if that is stale, the next poll
		return
	}
	if due, polling := f.pollDue(wake); polling {
		f.read(wake, due)
	}
	if pending {
		wake.until(lapse)
	}
}

// lapseAt returns when the known term has run out for all clocks that are within bounds, and
// whether that is still to be reported.
func (o *observer) lapseAt() (end, bool) {
	e := o.k.newest.of
	if e == nil || e.Vacant() || o.lapsed {
		return end{}, false
	}
	return o.k.end(o.k.newest), true
}

// learn takes in a record, and hands it to the callback if it is new.
func (o *observer) learn(e *RaceEntry, at, now instant, how source) {
	if o.ending {
		return
	}
	if e.TermLength > 0 {
		o.k.term = min(e.TermLength, MaxTermLength) // an observer has none of its own
	}
	news := o.k.learn(e, how, false, now)
	if news {
		o.shown, o.lapsed = instant{}, false
	}
	if how == wasRead {
		o.readAt = at
		if n := o.k.newest.of; oneTerm(e, n) && e.Compare(n) == 0 {
			o.shown = at
		}
	}
	o.diagnosis.look(e, &o.k, now, news, how, false)
	if !news {
		return
	}
	o.f.tellNews(e)
	if e.ElectionNumber == NoElections {
		return
	}
	if e.TermLength > 0 {
		o.setPoll(e.TermLength)
	}
	o.out.deliver(delivery{entry: e, call: o.cb, merge: !e.Vacant()})
}

// setPoll fits the observer's pace to the candidates' term.
func (o *observer) setPoll(term time.Duration) {
	term = min(max(term, 20*time.Millisecond), time.Hour)
	o.f.timeout = term / 4
	o.f.poll = term / 2
	if o.cfg.PollInterval > 0 {
		o.f.poll = min(max(o.cfg.PollInterval, minPoll), MaxTermLength)
	}
	// Even if a read hangs, look as often as the PollInterval asks.
	o.f.timeout = min(o.f.timeout, max(o.f.poll, time.Second))
	o.f.reads.standBy(o.f.poll, term)
}
