package sim

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// process is one candidate from its start to its end.
type process struct {
	settings
	host     *host
	name     string
	actor    *actor
	campaign *le.Campaign
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when Wait has returned

	leader le.RaceEntry // as Leader last said

	lifelined bool // it has a lifeline
	lifeless  bool // which cannot prove its own death

	// The recorder's, under its lock:
	leaving      bool                            // told to stop
	over         bool                            // has stopped
	overAt       time.Duration                   // and when, by its monotonic clock
	barred       bool                            // by itself, at an answer that no retry can help, before anything had worked
	since        time.Duration                   // monotonic: it started, or its last leadership ended
	well         bool                            // Healthy was asked since the last write, and the answer was nil
	cooldown     time.Duration                   // monotonic: it has resigned, and is not to campaign before this
	incarnations map[string]bool                 // that it has made up
	marked       map[le.ElectionNumber]bool      // its leaderships that are Unsynchronized, though it is not
	overOld      map[le.ElectionNumber]bool      // its acquisitions of what was older than what it knew; true: than what it was sure of
	asked        map[le.ElectionNumber]time.Time // the last TermExpiry asked for
	began        map[attempt]beginning           // the first call that asked for it
	ends         map[attempt]attempt             // an unsynchronized candidate's: the attempts by when a view ends that rests on them
	confirmed    map[attempt]time.Duration       // true time at which it was first told that it has it
	expiry       map[le.ElectionNumber]time.Time // the last TermExpiry that was written
	landed       map[attempt]time.Duration       // true time at which it was written
	index        map[attempt]int                 // as which record
	stamps       map[attempt]time.Time           // and by the store's time
	won          []won
	robberies    int // leases taken from leaders whose views were alive, since its clock was last set
	leaderships  map[le.ElectionNumber]*leadership
	current      *leadership
	number       le.ElectionNumber // of the last leadership
	running      int               // callbacks
	changing     bool
	windDown     time.Duration // of OnElected, at least
	told         *le.RaceEntry
}

// errLeft is why a simulated candidate stops.
var errLeft = errors.New("sim: told to stop")

// launch starts a candidate on the host.
func (h *host) launch() {
	w := h.w
	h.gen++
	p := &process{
		settings: w.settings(h), host: h, name: h.id + "." + string(rune('0'+h.gen%10)), done: make(chan struct{}),
		asked:        map[le.ElectionNumber]time.Time{},
		incarnations: map[string]bool{}, marked: map[le.ElectionNumber]bool{}, overOld: map[le.ElectionNumber]bool{}, began: map[attempt]beginning{}, confirmed: map[attempt]time.Duration{}, ends: map[attempt]attempt{},
		expiry: map[le.ElectionNumber]time.Time{},
		landed: map[attempt]time.Duration{}, index: map[attempt]int{}, stamps: map[attempt]time.Time{},
		leaderships: map[le.ElectionNumber]*leadership{},
	}
	p.actor = &actor{name: p.name, clock: h.clock, link: h.link, proc: p, bound: opsBound(p.extendEvery(), p.pollEvery(), w.uneven())}
	h.proc, h.all = p, append(h.all, p)
	ctx, cancel := context.WithCancelCause(context.Background())
	p.cancel = cancel
	runs := w.rng.IntN(8) == 0 && w.now() > 0 && !w.staged
	if runs {
		p.hold = 0
	}
	w.rec.note(p.name, "starts: TermLength %v, MaxClockSkew %v, PollInterval %v, DrainTimeout %v, Unsynchronized: %v, Hold %v, Priority %d, ExtendEvery %v", p.term, p.skew, p.poll, p.drain, p.unsynchronized, p.hold, p.priority, p.extend)
	w.rec.starts(p)
	if runs {
		p.run(ctx)
		return
	}
	cfg := p.config()
	cfg.OnElected = p.onElected
	var err error
	h.clock.Outside(func() { p.campaign, err = cfg.StartHeld(ctx, p.hold) })
	if err != nil {
		panic(err)
	}
	go func() {
		defer close(p.done)
		w.rec.stopped(p, p.campaign.Wait())
	}()
}

// config is the process's Config, but for what it does when it leads.
func (p *process) config() le.Config {
	w := p.host.w
	cfg := le.Config{
		Decider:      w.decider(p.actor),
		LeaderID:     p.host.id,
		TermLength:   p.term,
		MaxClockSkew: p.skew,
		ClockPolicy:  clockPolicy(w.Skew, p.unsynchronized),

		PollInterval:  p.poll,
		DrainTimeout:  p.drain,
		Priority:      p.priority,
		ExtendEvery:   p.extend,
		OnOusting:     p.onOusting,
		LeaderChanged: p.leaderChanged,
		Healthy:       p.healthy,
		Clock:         p.host.theClock(),
		Lifeline:      p.lifeline(w.lives),
		Trace: &le.Trace{
			StoreOp:       func(le.StoreOp) { p.stuck() },
			Extended:      func(x le.ViewExtended) { w.rec.extended(p, x) },
			StatusChanged: func(c le.StatusChange) { w.rec.note(p.name, "%v -> %v %v", c.From, c.To, c.Cause) },
			DuplicateID:   func(le.RaceEntry) { w.rec.count("fault: two processes had one LeaderID") },
			ClockSkew:     func(x *le.ClockSkewError) { w.rec.accused(p, x) },
			Feed:          func(f le.FeedEvent) { w.rec.note(p.name, "feed: %v", f.Err) },
		},
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	if w.rng.IntN(2) == 0 {
		cfg.Logger = slog.New(handler{slog.DiscardHandler, p})
	}
	return cfg
}

// handler is where a process logs to: nowhere, and sometimes it takes long.
type handler struct {
	slog.Handler
	p *process
}

func (h handler) Enabled(context.Context, slog.Level) bool  { return true }
func (h handler) Handle(context.Context, slog.Record) error { h.p.stuck(); return nil }

// stuck is a hook that may not return before it is calm again.
func (p *process) stuck() {
	if p.host.link.hookSticks() {
		p.host.w.rec.count("fault: a Trace or Logger got stuck")
		p.host.link.rest(time.Hour)
	}
}

// quit tells the process to stop.
func (p *process) quit() {
	p.host.w.rec.mu.Lock()
	p.leaving = true
	p.host.w.rec.mu.Unlock()
	p.cancel(errLeft)
}

// leavingNow reports whether the process is on its way out.
func (p *process) leavingNow() bool {
	p.host.w.rec.mu.Lock()
	defer p.host.w.rec.mu.Unlock()
	return p.leaving
}

// calls is how many calls of the store it has begun.
func (p *process) calls() int {
	p.host.w.rec.mu.Lock()
	defer p.host.w.rec.mu.Unlock()
	return p.actor.calls
}

// isBarred reports whether the process has ended by itself, as it may.
func (p *process) isBarred() bool {
	p.host.w.rec.mu.Lock()
	defer p.host.w.rec.mu.Unlock()
	return p.barred
}

// errJob is what a batch job returns sometimes.
var errJob = errors.New("sim: the job has failed")

// run makes the process a batch job, by Run: once it has led, it is over.
func (p *process) run(ctx context.Context) {
	w := p.host.w
	var ran, over bool
	var returned time.Duration
	var result, cause error
	job := func(ctx context.Context, view *le.TimeView) error {
		ran = true
		p.onElected(ctx, view)
		w.rec.mu.Lock()
		defer w.rec.mu.Unlock()
		p.leaving = true
		cause, returned = context.Cause(ctx), w.rec.now()
		p.actor.clock.Outside(func() { over = !view.ValueInFuture() })
		if view.ElectionNumber()%2 == 0 {
			result = errJob
		}
		return result
	}
	cfg := p.config()
	go func() {
		defer close(p.done)
		err := cfg.Run(ctx, job)
		w.rec.stopped(p, err)
		switch {
		case p.actor.dead.Load() || p.isBarred():
		case !ran && !errors.Is(err, errLeft),
			ran && result != nil && !errors.Is(err, result),
			ran && over && err == nil,
			ran && over && cause != nil && !errors.Is(err, cause),
			ran && !over && cause == nil && result == nil && err != nil && p.actor.clock.Awake(returned) == returned: // not frozen as it returned
			w.rec.fail(p.name, "Run returned %v; its job ran: %v, returned %v, and its ctx was cancelled by %v, its view over: %v", err, ran, result, cause, over)
		}
		w.rec.count("batch jobs")
	}()
}

// onElected is what the simulated leader does: it returns at once, or after some
// time, or when its ctx is cancelled and it has wound down.
func (p *process) onElected(ctx context.Context, view *le.TimeView) {
	w := p.host.w
	if p.actor.dead.Load() {
		return
	}
	g := w.rec.elected(p, ctx, view)
	context.AfterFunc(ctx, func() { w.rec.ctxDone(g) })
	manner := p.host.link.habit()
	defer func() {
		p.actor.clock.Gate()
		w.rec.returned(g, "OnElected")
	}()
	switch {
	case w.staged: // a scenario says what happens
		<-ctx.Done()
	case manner.brief && (p.campaign != nil || manner.rough):
		sleep(ctx, manner.work)
	case manner.resigns:
		sleep(ctx, manner.work)
		if p.campaign != nil {
			_ = p.campaign.Resign(ctx)
		}
	default:
		<-ctx.Done()
	}
	w.rec.mu.Lock()
	atLeast := p.windDown
	w.rec.mu.Unlock()
	time.Sleep(atLeast)
	p.host.link.rest(manner.windDown)
}

func (p *process) onOusting(ctx context.Context) {
	w := p.host.w
	if p.actor.dead.Load() {
		return
	}
	time.Sleep(time.Nanosecond) // OnElected was called, but a busy machine may not have come to its first statement
	g := w.rec.ousting(p, ctx)
	p.host.link.rest(p.host.link.habit().windDown)
	p.actor.clock.Gate()
	w.rec.returned(g, "OnOusting")
}

func (p *process) leaderChanged(_ context.Context, e le.RaceEntry) {
	if p.actor.dead.Load() {
		return
	}
	p.host.w.rec.changing(p, &e)
	p.host.link.rest(p.host.link.habit().windDown)
	p.actor.clock.Gate()
	p.host.w.rec.changed(p)
}

var errSick = errors.New("sim: sick")

func (p *process) healthy(ctx context.Context) error {
	sick, hang := p.host.link.illness()
	if sick {
		p.host.strike("was sick")
	}
	if hang > p.term/4 {
		p.host.w.rec.count("fault: a check of health came too late")
	}
	p.host.link.rest(hang)
	p.actor.clock.Gate()
	p.host.w.rec.mu.Lock()
	defer p.host.w.rec.mu.Unlock()
	p.well = !sick && ctx.Err() == nil
	if sick {
		return errSick
	}
	return ctx.Err()
}

// clockPolicy is that of a process whose machines' clocks are apart by skew at most.
func clockPolicy(skew time.Duration, unsynchronized bool) le.ClockPolicy {
	switch {
	case unsynchronized:
		return le.Unsynchronized
	case skew == 0:
		return le.SharedClock
	}
	return le.Synchronized
}

// observer is somebody who watches the election, with a clock and a link of its
// own, and holds Watch to what it promises.
type observer struct {
	w      *world
	actor  *actor
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error

	mu     sync.Mutex
	busy   bool
	barred bool // it has ended by itself, as it may
	last   *le.RaceEntry
	lapsed *le.RaceEntry
}

func (w *world) observe() *observer {
	clock := NewClock(w.epoch, w.Skew, w.offset(), (w.rng.Float64()*2-1)*w.Drift, 1+(w.rng.Float64()*2-1)*w.Drift)
	clock.spun = func() { go w.rec.fail("observer", "hot loop: the clock was read %d times at one moment", maxReadings) }
	a := &actor{name: "observer", clock: clock, link: NewLink(clock, w.Calm, w.Seed, 99)}
	a.link.pauses = w.Pauses
	o := &observer{w: w, actor: a, done: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(context.Background())
	o.cancel = cancel
	cfg := le.WatchConfig{Decider: w.decider(a), MaxClockSkew: w.Skew, ClockPolicy: clockPolicy(w.Skew, false), Clock: clock, Lapsed: o.lapse}
	if w.rng.IntN(2) == 0 {
		cfg.PollInterval = w.between(w.Term/10, w.Term)
	}
	a.bound = opsBound((w.Term-w.Skew)/4, max(cfg.PollInterval, w.Term/10), w.uneven())
	go func() {
		defer close(o.done)
		o.err = cfg.Watch(ctx, o.record)
		o.mu.Lock()
		defer o.mu.Unlock()
		w.rec.mu.Lock()
		o.barred = w.rec.bars(a, o.err)
		w.rec.mu.Unlock()
		if o.busy || !errors.Is(o.err, errLeft) && !o.barred {
			w.rec.fail("observer", "Watch has returned %v (callback running: %v)", o.err, o.busy)
		}
	}()
	return o
}

// enter begins a callback, leave ends it.
func (o *observer) enter(what string, e *le.RaceEntry) {
	o.w.rec.note("observer", "%s %v", what, o.w.rec.short(e))
	o.w.rec.count("observed: " + what)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		o.w.rec.fail("observer", "%s %v while another callback is running", what, o.w.rec.short(e))
	}
	o.busy = true
}

func (o *observer) leave() {
	o.actor.link.rest(o.actor.link.habit().windDown)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = false
}

// record is the callback for each new record.
func (o *observer) record(_ context.Context, e le.RaceEntry) {
	o.enter("record", &e)
	defer o.leave()
	o.mu.Lock()
	last := o.last
	o.last = &e
	o.mu.Unlock()
	if last != nil && !o.w.rec.follows(&e, last) {
		o.w.rec.fail("observer", "is told of %v after %v", o.w.rec.short(&e), o.w.rec.short(last))
	}
	if e.ElectionNumber == le.NoElections {
		o.w.rec.fail("observer", "is told of an election that nobody has led")
	}
}

// lapse is the callback for a term that has run out.
func (o *observer) lapse(_ context.Context, e le.RaceEntry) {
	o.enter("lapse", &e)
	defer o.leave()
	o.mu.Lock()
	last, lapsed := o.last, o.lapsed
	o.lapsed = &e
	o.mu.Unlock()
	if last == nil || last.Compare(&e) != 0 || e.Vacant() || lapsed != nil && lapsed.Compare(&e) == 0 {
		o.w.rec.fail("observer", "is told that %v has lapsed, after the record %v and the lapse of %v", o.w.rec.short(&e), o.w.rec.short(last), o.w.rec.short(lapsed))
	}
	o.w.rec.mu.Lock()
	defer o.w.rec.mu.Unlock()
	seen := o.actor.told[stateOf(&e)]
	early := seen.asked.wall.Before(e.TermExpiry.Add(o.w.Skew))
	switch first := o.actor.terms[termOf(&e)].mono; {
	case e.Unsynchronized:
		early = seen.asked.mono < first+e.TermLength+max(o.w.Skew, e.TermLength/100)
	case (o.w.rec.wild || o.w.rec.lies) && e.Hold == 0: // its TermExpiry may be disproved
		early = early && seen.asked.mono < first+2*e.TermLength
	}
	if early {
		o.w.rec.failf("observer", "is told that %v has lapsed, but has not read it again since", o.w.rec.short(&e))
	}
}

// upToDate: in calm weather the observer knows who leads, or who did lately: a
// candidate whose clock drifts out of its bound steps down in any weather.
func (o *observer) upToDate() {
	o.mu.Lock()
	last, barred := o.last, o.barred
	o.mu.Unlock()
	if barred {
		return
	}
	o.w.rec.mu.Lock()
	defer o.w.rec.mu.Unlock()
	i := len(o.w.rec.records) - 1
	for o.w.rec.times[i] > o.w.now()-o.w.leaderWithin() {
		i--
	}
	then := &o.w.rec.records[i]
	if last == nil && 2*o.w.leaderWithin() < 5*le.DefaultTermLength/4 {
		return // it knows nothing of the term yet, and takes it for the default: this is its standoff
	}
	if then.ElectionNumber != le.NoElections && (last == nil || last.ElectionNumber < then.ElectionNumber) {
		o.w.rec.failf("observer", "knows of %v, long after %v", o.w.rec.short(last), o.w.rec.short(then))
	}
}
