package sim

import (
	"context"
	"errors"
	"maps"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// leadership is one leadership as the recorder sees it.
type leadership struct {
	p        *process
	number   le.ElectionNumber
	view     *le.TimeView
	ctx      context.Context
	moves    []move
	setBack  time.Duration // by how much more the wall clock showed as left than the monotonic one, when last looked at
	over     bool          // seen over once
	overSeen time.Duration
	done     bool // its ctx
	doneAt   time.Duration
	running  int   // callbacks
	ousted   int   // calls of OnOusting
	passed   []int // records by which others have won who could not know of it
}

// acts reports whether anything of the leadership can act now: its process is neither dead nor
// stopped.
func (g *leadership) acts() bool { return !g.p.actor.dead.Load() && !g.p.actor.clock.Frozen() }

// move is one position of a view's end.
type move struct {
	at   time.Duration // true time
	wall time.Time
	mono time.Duration
}

// won is an acquisition that has happened.
type won struct {
	number le.ElectionNumber
	at     time.Duration // in true time
	op     *op
	stamp  time.Time   // the store's
	robbed *leadership // whose view was alive when clocks are beyond their bound, or nil
}

// attempt names a term that was asked for.
type attempt struct {
	number le.ElectionNumber
	expiry int64
}

// beginning is when a term was first asked for.
type beginning struct {
	at   time.Duration // true time
	mono time.Duration
}

// elected is told that OnElected has been called.
func (r *recorder) elected(p *process, ctx context.Context, view *le.TimeView) *leadership {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := &leadership{p: p, number: view.ElectionNumber(), view: view, ctx: ctx}
	r.logf(p.name, "OnElected %d", g.number)
	r.counts["leaderships"]++
	if p.running > 0 {
		r.failf(p.name, "OnElected %d while %d callbacks of an earlier leadership are running", g.number, p.running)
	}
	if g.number <= p.number {
		r.failf(p.name, "OnElected %d after leadership %d", g.number, p.number)
	}
	if p.overOld[g.number] {
		r.failf(p.name, "leads by leadership %d, though what it took was older than what it knew: somebody may lead by what the store has lost", g.number)
	}
	p.running++
	g.running++
	p.number = g.number
	p.leaderships[g.number] = g
	p.current = g
	for _, other := range r.leaderships {
		if !r.wild && other.p != p && !other.done && !other.p.actor.dead.Load() && r.mustBeDone(other) {
			r.failf(p.name, "OnElected %d while the leader's ctx of leadership %d (%s) is live", g.number, other.number, other.p.name)
		}
	}
	r.leaderships = append(r.leaderships, g)
	r.check()
	return g
}

// ctxSlack is how late a leader's ctx may be for the drift between the clock
// that the view is measured by and the one that is slept by.
const ctxSlack = time.Millisecond

// mustBeDone reports whether a leader's ctx has had all the time that rule 13 gives
// it: none, but for a second after a clock was stepped or a machine resumed.
func (r *recorder) mustBeDone(g *leadership) bool {
	clock, now := g.p.actor.clock, r.now()
	if clock.Frozen() {
		return false
	}
	r.moved(g)
	at := g.overAt(now)
	second := time.Duration(float64(time.Second) / (1 - g.p.host.w.uneven())) // by its own clock
	if d := clock.Disturbed(); d >= at-second-ctxSlack {
		at = max(at, d) + second
	}
	return now > at+ctxSlack
}

// ctxDone is told that a leader's ctx was cancelled.
func (r *recorder) ctxDone(g *leadership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cause := context.Cause(g.ctx)
	r.logf(g.p.name, "ctx of leadership %d: %v", g.number, cause)
	if g.p.actor.dead.Load() {
		g.done = true
		return
	}
	kind := cause
	if errors.Is(cause, le.ErrClockSkew) {
		kind = le.ErrClockSkew // without its figures
	}
	r.counts["ended: "+kind.Error()]++
	if kind == le.ErrClockSkew && g.p.measures(g.number) {
		r.failf(g.p.name, "leadership %d ends since its clock is wrong, though it compares none: %v", g.number, cause)
	}
	if r.mustBeDone(g) {
		r.failf(g.p.name, "the leader's ctx of leadership %d was cancelled %v after its view had ended", g.number, r.now()-g.overAt(r.now()))
	}
	g.done, g.doneAt = true, r.now()
	if r.watched == g.p {
		r.failf(g.p.name, "leadership %d ends though nothing has happened to its leader: %v", g.number, cause)
	}
	r.check()
	if errors.Is(cause, le.ErrOusted) && !g.over {
		r.failf(g.p.name, "ousted from leadership %d, but its view is in the future", g.number)
	}
}

// returned is told that a callback of a leadership has returned.
func (r *recorder) returned(g *leadership, which string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logf(g.p.name, "%s %d returns", which, g.number)
	g.running--
	g.p.running--
	if g.done && r.now()-g.doneAt > g.p.drain {
		r.counts["fault: a leader's callbacks took longer than DrainTimeout"]++
	}
	_, mono := g.p.actor.clock.Both()
	g.p.since = mono
	if errors.Is(context.Cause(g.ctx), le.ErrResigned) {
		g.p.cooldown = mono + g.p.term
	}
}

// ousting is told that OnOusting has been called.
func (r *recorder) ousting(p *process, ctx context.Context) *leadership {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := p.current
	if g == nil || g.ousted > 0 {
		r.failf(p.name, "OnOusting without an OnElected before it")
		p.running++
		return &leadership{p: p, ctx: ctx, running: 1}
	}
	r.logf(p.name, "OnOusting %d", g.number)
	g.ousted++
	g.running++
	p.running++
	if g.ctx.Err() == nil {
		r.failf(p.name, "OnOusting %d, but the leader's ctx is live", g.number)
	}
	return g
}

// starts looks whether a process starts while its predecessor's lease runs.
func (r *recorder) starts(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wall, mono := p.host.clock.Both()
	p.since = mono
	if e := &r.records[len(r.records)-1]; e.LeaderID == p.host.id && wall.Before(e.TermExpiry) {
		r.counts["fault: a process started anew while its old lease ran"]++
	}
}

// changing is told that LeaderChanged has been called; changed that it returned.
func (r *recorder) changing(p *process, e *le.RaceEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logf(p.name, "LeaderChanged %v", r.short(e))
	if p.changing {
		r.failf(p.name, "LeaderChanged %v while an earlier call is running", r.short(e))
	}
	p.changing = true
	if t := p.told; t != nil && (!r.newer(e, t) || e.ElectionNumber == t.ElectionNumber && e.Incarnation == t.Incarnation && e.Vacant() == t.Vacant()) {
		r.failf(p.name, "LeaderChanged %v after %v", r.short(e), r.short(t))
	}
	p.told = e
}

// newer reports whether e is news after told: newer, or one that the store has had by the same
// order, in place of what was told of and was undone, or lost when the store was set back. With the lock.
func (r *recorder) newer(e, told *le.RaceEntry) bool {
	if order := e.Compare(told); order != 0 || alike(e, told) {
		return order > 0
	}
	for i := len(r.records) - 1; i > 0; i-- {
		if alike(&r.records[i], e) {
			return true
		}
	}
	return false
}

// alike reports whether a and b are one record: a record is identified by its content.
func alike(a, b *le.RaceEntry) bool {
	return a.Compare(b) == 0 && a.Incarnation == b.Incarnation && a.LeaderID == b.LeaderID && a.Successor == b.Successor && a.TermExpiry.Equal(b.TermExpiry) && maps.Equal(a.Extra, b.Extra)
}

// follows is newer without the lock.
func (r *recorder) follows(e, told *le.RaceEntry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newer(e, told)
}

func (r *recorder) changed(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.changing = false
}

// extended is told of Trace.Extended.
func (r *recorder) extended(p *process, x le.ViewExtended) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logf(p.name, "view of leadership %d extended to %.6f, %v were left", x.Number, x.Expiry.Sub(r.epoch.Round(0)).Seconds(), x.Remaining)
	r.check()
}

// stopped is told that Wait has returned: nothing of the candidate may be left.
func (r *recorder) stopped(p *process, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logf(p.name, "stopped: %v", err)
	p.over = true
	_, p.overAt = p.actor.clock.Both()
	if p.actor.dead.Load() {
		return
	}
	if !p.leaving && r.bars(p.actor, err) {
		p.leaving, p.barred = true, true
	}
	if !p.leaving {
		r.failf(p.name, "stopped by itself: %v", err)
	}
	if p.running > 0 || p.changing {
		r.failf(p.name, "Wait has returned while %d callbacks are running (LeaderChanged: %v)", p.running, p.changing)
	}
	for n, g := range p.leaderships {
		if g.ousted != 1 || g.ctx.Err() == nil {
			r.failf(p.name, "Wait has returned; of leadership %d OnOusting was called %d times, and its ctx ended with %v", n, g.ousted, context.Cause(g.ctx))
		}
		if g.inFuture() {
			r.failf(p.name, "Wait has returned, but the view of leadership %d is in the future", n)
		}
	}
}

// overlap judges two views that are both in the future now. That is never right
// where every clock keeps within its bound and the store forgets nothing.
func (r *recorder) overlap(a, b *leadership) {
	older, newer := a, b
	if a.acquired().at > b.acquired().at {
		older, newer = b, a
	}
	w := newer.acquired()
	first, second := older, newer
	if r.landedAt(first) > r.landedAt(second) {
		first, second = second, first // the older one has extended its term since
	}
	if r.lost(first, second.p.actor, r.began(second), r.indexOf(second)) {
		r.apart(older, newer, "fault: the store was set back, and its record taken by one who did not know better")
		return
	}
	took := r.now() - w.at
	if r.lies && took <= r.uncertainty(older, w) {
		r.apart(older, newer, "overlaps within the measurement's uncertainty")
		return
	}
	if took <= r.blind(older) {
		r.apart(older, newer, "overlaps by machines that were suspended and set back before anybody looked")
		return
	}
	if r.believed {
		r.counts["overlaps"]++
		return
	}
	r.counts["overlaps"]++
	r.failf(newer.p.name, "OVERLAP: the views of leadership %d (%s) and of leadership %d are both in the future, %v after the latter was won", older.number, older.p.name, newer.number, took)
}

// acquired is how the leadership was won.
func (g *leadership) acquired() won {
	for _, w := range g.p.won {
		if w.number == g.number {
			return w
		}
	}
	return won{}
}

// landedAt is when the write happened that the view of g rests on.
func (r *recorder) landedAt(g *leadership) time.Duration { return g.p.landed[g.attempt()] }

// apart counts two leaderships that overlap, once for each pair.
func (r *recorder) apart(older, newer *leadership, why string) {
	pair := [2]*leadership{older, newer}
	if !r.pairs[pair] {
		r.pairs[pair] = true
		r.counts[why]++
	}
}

// began is when the term was asked for that the view of g rests on, and indexOf which
// record that became.
func (r *recorder) began(g *leadership) time.Duration { return g.p.began[g.attempt()].at }

func (r *recorder) indexOf(g *leadership) int { return g.p.index[g.attempt()] }

// erased reports whether the store was set back after the i-th record was written, and
// before the j-th was.
func (r *recorder) erased(i, j int) bool {
	for _, back := range r.backs {
		if i < back && back < j {
			return true
		}
	}
	return false
}

// lost reports whether the write that the view of g rests on was lost, for the one who
// made the j-th record, for which it asked at the true time asked: the store was set
// back in between, and it had not been told of that write; or took it for old, since
// what had been lost before that, or was never committed, was newer; or has found that
// another has led since, who did not know better.
func (r *recorder) lost(g *leadership, by *actor, asked time.Duration, j int) bool {
	i := r.indexOf(g)
	if !r.erased(i, j) || r.shown(i, j) {
		return false
	}
	for _, m := range g.passed {
		if r.erased(i, m) && m < j {
			return true
		}
	}
	for s, seen := range by.told {
		if !g.p.incarnations[s.incarnation] || s.number != g.number || seen.at > asked || seen.expiry.UnixNano() < g.attempt().expiry {
			continue
		}
		if seen.over == nil || r.stood(*seen.over, i) {
			return false
		}
	}
	return true
}

// stood reports whether the state s is that of a record that was there at some time before
// the i-th, and had not been lost by then.
func (r *recorder) stood(s state, i int) bool {
	for k := i; k > 0; k-- {
		if stateOf(&r.records[k]) == s {
			return !r.erased(k, i)
		}
	}
	return false
}

// attempt is the one that the view rests on now.
func (g *leadership) attempt() attempt { return g.p.attempt(g.number, g.view.Get()) }

// attempt is the one by which a view of the leadership ends at end.
func (p *process) attempt(number le.ElectionNumber, end time.Time) attempt {
	if a, known := p.ends[attempt{number, end.UnixNano()}]; known || p.unsynchronized {
		return a
	}
	return attempt{number, end.Add(p.skew).UnixNano()}
}

// stampOf is when the store says that it wrote e.
func stampOf(e *le.RaceEntry) time.Time {
	if e.Token == nil {
		return time.Time{}
	}
	return e.Token.CommitTS()
}
