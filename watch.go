package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// WatchConfig is an observer: it follows an election and takes no part.
type WatchConfig struct {
	// Decider is the record to follow. Required. Only its ReadCurrent and its
	// ChangeFeed, where it has one, are used.
	Decider RaceDecider

	// MaxClockSkew is as in the candidates' Config: how far this machine's
	// clock, or a leader's, may be from true time. It delays Lapsed. Zero means
	// 1 s, more than a year a year.
	MaxClockSkew time.Duration

	// SharedClock is as in the candidates' Config: there is no skew.
	SharedClock bool

	// PollInterval is how often the record is read where the store cannot push
	// changes, or its feed has failed. Zero means half of the term that the
	// record names: two reads a term.
	PollInterval time.Duration

	// Lapsed is called, in order with the callback given to Watch, when the
	// term of entry has run out unextended: read again at or past TermExpiry
	// plus MaxClockSkew, it was still the same. (Of a record marked
	// Unsynchronized: read again when it had not been seen to change for a term
	// and the allowance for drift.) A leader that comes back afterwards is a new
	// record. Optional.
	Lapsed func(ctx context.Context, entry RaceEntry)

	// Clock, Logger and Trace are as in Config. All optional.
	Clock  clocks.Clock
	Logger *slog.Logger
	Trace  *Trace
}

// Watch follows the election until ctx ends, and calls cb for each new record:
// the first one found, each leadership, each extension (those of one leadership may be
// merged while cb is busy), each vacancy. It never calls it twice for the same
// record, nor for an older one; an election in which nobody has led yet has none.
// Calls are made one at a time and in order, with Watch's ctx; a slow cb delays
// only later calls, and where it is stuck the oldest of more than a hundred
// waiting records are dropped.
//
// Watch returns when the last call has returned: with context.Cause(ctx), or at
// once where the WatchConfig is wrong, or with an ErrPermanent where the store
// refused for good before anything had worked.
func (w WatchConfig) Watch(ctx context.Context, cb func(ctx context.Context, entry RaceEntry)) error {
	if err := w.validate(cb); err != nil {
		return err
	}
	if w.Clock == nil {
		w.Clock = clocks.System()
	}
	w.MaxClockSkew = min(skewOf(w.MaxClockSkew, w.SharedClock), MaxTermLength)
	o := &observer{cfg: w, parent: ctx, cb: cb}
	f := &o.f
	f.init(ctx, w.Clock, w.Decider, w.Clock.Now().String(), DefaultTermLength)
	f.logger, f.trace = w.Logger, w.Trace
	o.k = knowledge{skew: w.MaxClockSkew, term: DefaultTermLength}
	o.setPoll(DefaultTermLength)
	o.out = deliveries{ctx: ctx, idle: f.events.idle}
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
	if w.MaxClockSkew < 0 {
		faults = append(faults, fmt.Errorf("MaxClockSkew is %v, must not be negative", w.MaxClockSkew))
	}
	if w.SharedClock && w.MaxClockSkew > 0 {
		faults = append(faults, fmt.Errorf("MaxClockSkew is %v, though SharedClock says that there is no skew: leave one of them out", w.MaxClockSkew))
	}
	if w.PollInterval < 0 {
		faults = append(faults, fmt.Errorf("PollInterval is %v, must not be negative", w.PollInterval))
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("leaderelection: wrong WatchConfig: %w", errors.Join(faults...))
}

// observer is a running Watch.
type observer struct {
	cfg    WatchConfig
	parent context.Context
	cb     func(context.Context, RaceEntry)
	f      follower
	k      knowledge
	out    deliveries
	lapsed *RaceEntry // the record that Lapsed was called for
	ending bool
	endBy  time.Duration
	err    error
}

// loop is Watch's own goroutine's.
func (o *observer) loop() error {
	awaken := context.AfterFunc(o.parent, func() { o.f.post(lookAgain{}) })
	defer awaken()
	defer o.f.close()
	for {
		posted := o.f.take()
		for _, e := range posted {
			o.handle(e, o.f.now())
		}
		clear(posted)
		wake, stopped := o.step(o.f.now())
		if stopped {
			return o.err
		}
		o.f.sleep(o.cfg.Clock, wake)
	}
}

// handle takes in one event, at the instant now.
func (o *observer) handle(e event, now instant) {
	switch e := e.(type) {
	case *answer:
		o.f.settle(e, now)
		switch {
		case e.err != nil:
		case e.abandoned:
			o.learn(e.got, e.start, now, wasPushed)
		default:
			o.f.feedCheck(&o.k, e.got, now)
			o.learn(e.got, e.start, now, wasRead)
		}
	case pushed:
		o.f.delivered(e, o.k.latest, now)
		o.learn(e.entry, now, now, wasPushed)
	case feedEnded:
		o.f.feedGone(e, now)
	}
}

// step does what is due, and returns how long nothing else can become due.
func (o *observer) step(now instant) (time.Duration, bool) {
	wake := newAlarm(now)
	f := &o.f
	f.giveUpCall(now)
	if !o.ending {
		switch {
		case o.parent.Err() != nil:
			o.end(now, context.Cause(o.parent))
		case f.failure != nil:
			o.end(now, f.failure)
		}
	}
	if o.ending {
		gone := f.wind()
		if !o.out.busy() && (gone || now.mono >= o.endBy) {
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

// end begins the end: what has not been told is not told any more.
func (o *observer) end(now instant, err error) {
	o.ending, o.err, o.endBy = true, err, now.mono+100*time.Millisecond
	o.out.drop()
}

// act reads where that is due, and tells of a lapse.
func (o *observer) act(wake *alarm) {
	f := &o.f
	lapse, pending := o.lapseAt()
	if pending && lapse.reached(o.k.sameAt) {
		o.lapsed, pending = o.k.latest, false
		if o.cfg.Lapsed != nil {
			o.out.add(delivery{entry: o.k.latest, call: o.cfg.Lapsed})
		}
	}
	if !f.mayCall(wake) {
		return
	}
	if o.k.disputed {
		f.read(wake, 0)
	} else if due, polling := f.pollDue(wake, &o.k); polling {
		f.read(wake, due)
	}
	if f.call == nil && pending {
		if !lapse.reached(wake.now) {
			wake.until(lapse)
		} else if !lapse.reached(o.k.readAt) {
			f.read(wake, 0) // and if that is stale, the next poll
		}
	}
}

// lapseAt is when the known term has run out, for all clocks that are within
// bounds, and whether that is still to be told.
func (o *observer) lapseAt() (deadline, bool) {
	e := o.k.latest
	if e == nil || e.Vacant() || e == o.lapsed {
		return deadline{}, false
	}
	return o.k.over(e), true
}

// learn takes in a record, and hands on what is new.
func (o *observer) learn(e *RaceEntry, at, now instant, how source) {
	if o.ending {
		return
	}
	news := o.k.learn(e, at, now, how)
	o.f.checkSetBack(e, &o.k, now, how)
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
	if err := tooFar(e, now.wall, o.cfg.MaxClockSkew); err != nil {
		o.f.log(slog.LevelWarn, "clocks disagree", "err", err)
	}
	o.out.add(delivery{entry: e, call: o.cb, merge: !e.Vacant()})
}

// setPoll fits the observer's pace to the candidates' term.
func (o *observer) setPoll(term time.Duration) {
	term = min(max(term, 20*time.Millisecond), time.Hour)
	o.f.timeout = term / 4
	o.f.poll = term / 2
	if o.cfg.PollInterval > 0 {
		o.f.poll = min(max(o.cfg.PollInterval, minPoll), MaxTermLength)
	}
	// A read that hangs is no reason to look more rarely than was asked for.
	o.f.timeout = min(o.f.timeout, max(o.f.poll, time.Second))
	o.f.reads.within(o.f.poll)
}
