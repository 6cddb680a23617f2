package simtest

import (
	"context"
	"errors"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// host is a machine: a clock, a link, and the process that runs on it, if any.
type host struct {
	w     *world
	id    string
	kind  clockKind
	clock *Clock
	link  *Link
	thaw  func() // while frozen
	proc  *process
	gen   int // of its processes
	all   []*process
}

// clockKind is what sort of clock a host has.
type clockKind int

const (
	stepping clockKind = iota // drifts and is stepped, and has Monotonic
	carries                   // a constant offset, and readings that carry a monotonic one
	system                    // clocks.System: true time
)

// theClock is what the process on the host is given.
func (h *host) theClock() clocks.Clock {
	switch h.kind {
	case carries:
		return carrying{h.clock}
	case system:
		return nil
	}
	return h.clock
}

// process is one candidate from its start to its end.
type process struct {
	host     *host
	name     string
	actor    *actor
	campaign *le.Campaign
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when Wait has returned

	// The recorder's, under its lock:
	leaving     bool          // told to stop
	well        bool          // Healthy was asked since the last write, and the answer was nil
	sitOut      time.Duration // monotonic: it has resigned, and is not to contest before this
	incarnation string
	asked       map[le.ElectionNumber]time.Time // the last TermExpiry asked for
	began       map[attempt]time.Duration       // monotonic time of the first call that asked for it
	expiry      map[le.ElectionNumber]time.Time // the last TermExpiry that was written
	reigns      map[le.ElectionNumber]*reign
	current     *reign
	number      le.ElectionNumber // of the last reign
	running     int               // callbacks
	early       int               // calls of OnOusting before the OnElected of the same moment
	changing    bool
	windDown    time.Duration // of OnElected, at least
	told        *le.RaceEntry
}

// errLeft is why a simulated candidate stops.
var errLeft = errors.New("simtest: told to stop")

// launch starts a candidate on the host.
func (h *host) launch() {
	w := h.w
	h.gen++
	p := &process{
		host: h, name: h.id + "." + string(rune('0'+h.gen%10)), done: make(chan struct{}),
		asked:  map[le.ElectionNumber]time.Time{},
		began:  map[attempt]time.Duration{},
		expiry: map[le.ElectionNumber]time.Time{},
		reigns: map[le.ElectionNumber]*reign{},
	}
	p.actor = &actor{name: p.name, clock: h.clock, link: h.link, proc: p}
	h.proc, h.all = p, append(h.all, p)
	ctx, cancel := context.WithCancelCause(context.Background())
	p.cancel = cancel
	cfg := le.Config{
		Decider:      w.decider(p.actor),
		LeaderID:     h.id,
		TermLength:   w.Term,
		MaxClockSkew: w.Skew,
		PollInterval: w.Poll,
		DrainTimeout: w.Drain,
		OnElected:    p.onElected,
		OnOusting:    p.onOusting,
		Healthy:      p.healthy,
		Clock:        h.theClock(),
		Trace: &le.Trace{
			Extended:      func(x le.ViewExtended) { w.rec.extended(p, x) },
			StatusChanged: func(c le.StatusChange) { w.rec.note(p.name, "%v -> %v %v", c.From, c.To, c.Cause) },
			Feed:          func(f le.FeedEvent) { w.rec.note(p.name, "feed: %v", f.Err) },
		},
	}
	cfg.LeaderChanged = p.leaderChanged
	w.rec.note(p.name, "starts")
	var campaign *le.Campaign
	var err error
	h.clock.Outside(func() { campaign, err = cfg.Start(ctx) })
	if err != nil {
		panic(err)
	}
	p.campaign = campaign
	go func() {
		defer close(p.done)
		w.rec.stopped(p, campaign.Wait())
	}()
}

// crash ends the process without a word: nothing that it does from now on counts.
func (h *host) crash() {
	h.w.rec.note(h.proc.name, "crashes")
	h.proc.actor.dead.Store(true)
	h.resume()
	h.proc.cancel(errDead)
	h.proc = nil
}

// leave tells the process to stop; a frozen one hears of it when it resumes.
func (h *host) leave() {
	h.w.rec.note(h.proc.name, "is told to stop")
	h.proc.quit()
	h.proc = nil
}

func (p *process) quit() {
	p.host.w.rec.mu.Lock()
	p.leaving = true
	p.host.w.rec.mu.Unlock()
	p.cancel(errLeft)
}

// freeze stops the process; with suspend its monotonic clock as well.
func (h *host) freeze(suspend bool) {
	if h.thaw != nil || h.kind == system {
		return
	}
	suspend = suspend && h.kind == stepping
	h.w.rec.note(h.id, "freezes (suspended: %v)", suspend)
	h.thaw = h.clock.Freeze(suspend)
}

func (h *host) resume() {
	if h.thaw != nil {
		h.w.rec.note(h.id, "resumes")
		h.thaw()
		h.thaw = nil
	}
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
	case manner.brief:
		sleep(ctx, manner.work)
	case manner.resigns:
		sleep(ctx, manner.work)
		_ = p.campaign.Resign(ctx)
	default:
		<-ctx.Done()
	}
	w.rec.mu.Lock()
	d := max(manner.windDown, p.windDown)
	w.rec.mu.Unlock()
	time.Sleep(d)
}

func (p *process) onOusting(ctx context.Context) {
	w := p.host.w
	if p.actor.dead.Load() {
		return
	}
	g := w.rec.ousting(p, ctx)
	time.Sleep(p.host.link.habit().windDown)
	p.actor.clock.Gate()
	w.rec.returned(g, "OnOusting")
}

func (p *process) leaderChanged(_ context.Context, e le.RaceEntry) {
	if p.actor.dead.Load() {
		return
	}
	p.host.w.rec.changing(p, &e)
	time.Sleep(p.host.link.habit().windDown)
	p.actor.clock.Gate()
	p.host.w.rec.changed(p)
}

var errSick = errors.New("simtest: sick")

func (p *process) healthy(ctx context.Context) error {
	sick, hang := p.host.link.illness()
	time.Sleep(hang)
	p.actor.clock.Gate()
	p.host.w.rec.mu.Lock()
	defer p.host.w.rec.mu.Unlock()
	p.well = !sick && ctx.Err() == nil
	if sick {
		return errSick
	}
	return ctx.Err()
}
