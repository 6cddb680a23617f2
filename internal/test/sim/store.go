package sim

import (
	"context"
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"reflect"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// Store is what an election is held on. The recorder goes by what it holds, not by
// what its clients say.
type Store interface {
	// Decider returns the client of one machine. Whatever may change the record is
	// done by way.Change, where it happens: in a client that nothing can go wrong
	// with (see way.Over), or in the server, if faults lie between.
	Decider(way *Way) le.RaceDecider
	// Current returns the record as it is now, whatever the weather.
	Current() (*le.RaceEntry, error)
}

// Wired is a Store that has a wire below its clients, on which requests get lost: see
// [Way.Roll].
type Wired interface {
	Store
	Wired()
}

// On returns a store that all machines reach by the same client, which lives in the
// bubble and fails by itself at most.
func On(d le.RaceDecider) Store { return one{d} }

type one struct{ le.RaceDecider }

func (o one) Decider(way *Way) le.RaceDecider { return way.Over(o.RaceDecider) }

func (o one) Current() (*le.RaceEntry, error) { return o.ReadCurrent(context.Background()) }

// Way is a machine's way to the store.
type Way struct {
	actor *actor
	rec   *recorder
}

// Worked reports whether a call of the machine's has worked. If none has, an error that no
// retry can help ends a campaign.
func (w *Way) Worked() bool {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	return w.actor.worked
}

// Roll lets f draw what happens to a request on the wire. Bad is how likely a fault is, 1
// if the machine is cut off; calm is the greatest latency each way that is no fault, and
// left how long the weather lasts.
func (w *Way) Roll(f func(rng *rand.Rand, x Weather, calm, left time.Duration)) {
	l := w.actor.link
	l.mu.Lock()
	defer l.mu.Unlock()
	x, left := l.weather, l.left()
	if left <= 0 {
		x = Weather{}
	}
	f(l.rng, x, l.calm, left)
}

// Count counts a fault that the store has played.
func (w *Way) Count(what string) { w.rec.count("wire: " + what) }

// Change does what may change the record, for the call that ctx is of, and shows the
// recorder what has come of it. Nothing else changes it meanwhile.
func (w *Way) Change(ctx context.Context, do func()) {
	o, _ := ctx.Value(opKey{}).(*op)
	w.rec.change(w.actor, o, do)
}

// Over returns the decider with its writes in Change. It has a feed if d has one.
func (w *Way) Over(d le.RaceDecider) le.RaceDecider {
	if feed, ok := d.(le.ChangeFeed); ok {
		return overFeed{over{d, w}, feed}
	}
	return over{d, w}
}

type over struct {
	le.RaceDecider
	way *Way
}

func (d over) WriteEntry(ctx context.Context, entry *le.RaceEntry) (token le.LeaderToken, err error) {
	d.way.Change(ctx, func() { token, err = d.RaceDecider.WriteEntry(ctx, entry) })
	return token, err
}

type overFeed struct {
	over
	feed le.ChangeFeed
}

func (d overFeed) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	return d.feed.Changes(ctx)
}

// wired reports whether the store's clients have a wire below them.
func (r *recorder) wired() bool {
	_, is := r.store.(Wired)
	return is
}

// opKey is what a call is known by in its ctx.
type opKey struct{}

// change does what may change the record, by the call o of the actor a, and looks what has
// come of it.
func (r *recorder) change(a *actor, o *op, do func()) {
	r.landing <- struct{}{}
	defer func() { <-r.landing }()
	do()
	e, err := r.store.Current()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failf(a.name, "has made a record that cannot be read: %v", err)
		return
	}
	last := &r.records[len(r.records)-1]
	switch {
	case sameWrite(e, last) && (r.wired() || reflect.DeepEqual(e.Token, last.Token)):
		last.Token = e.Token // a request that is a part of a write, or a lease, may have another
		return
	case o == nil || o.write == nil || !sameWrite(e, o.write):
		r.failf(a.name, "the record is %v, which it has not asked for", r.short(e))
		r.add(e)
		return
	}
	r.happened(o, e.Token)
}

// sameWrite reports whether the record e is what was written.
func sameWrite(e, write *le.RaceEntry) bool {
	return stateOf(e) == stateOf(write) && e.LeaderID == write.LeaderID && e.Successor == write.Successor && e.TermExpiry.Equal(write.TermExpiry)
}

// bars reports whether err may end the actor's campaign, or its Watch: an answer that was
// damaged on the wire may look like a record that no retry can help, and nothing has worked
// before. With the lock.
func (r *recorder) bars(a *actor, err error) bool {
	if !r.wired() || a.worked || !errors.Is(err, le.ErrPermanent) {
		return false
	}
	r.counts["wire: the first answer was damaged"]++
	return true
}

// happened takes in a write that has changed the record. With the lock.
func (r *recorder) happened(o *op, token le.LeaderToken) {
	e := *o.write.Clone()
	e.Token = token
	o.landed = true
	old := &r.records[len(r.records)-1]
	r.add(&e)
	r.logf(o.actor.name, "landed: %v", r.short(&e))
	r.landed(o, old, &e)
	if err := r.spec.Landed(r.epoch.Add(o.at), &e); err != nil {
		r.failf(o.actor.name, "the specification has it otherwise: %v", err)
	}
	r.check()
}

// freeze is a stretch of true time in which all who run by a clock stand still.
type freeze struct {
	from, to  time.Duration // to is far away while it lasts
	suspended bool          // the monotonic clock stood still as well
	seen      time.Duration // true time of the last reading before it
	noticed   time.Duration // and of the first one after it
}

// step is that a clock was set, by so much.
type step struct {
	at, by time.Duration
}

// look notes a reading of those who run by the clock. With the lock.
func (c *Clock) look(at time.Duration) {
	c.looked = at
	for i := len(c.freezes) - 1; i >= 0 && c.freezes[i].noticed == math.MaxInt64 && c.freezes[i].to <= at; i-- {
		c.freezes[i].noticed = at
	}
}

// SetBack is by how much in all the clock was set back, after the true time from and
// not after to.
func (c *Clock) SetBack(from, to time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setBack(from, to)
}

func (c *Clock) setBack(from, to time.Duration) time.Duration {
	var sum time.Duration
	for _, s := range c.steps {
		if s.at > from && s.at <= to && s.by < 0 {
			sum -= s.by
		}
	}
	return sum
}

// Hidden is how much of the true time from from to to nobody who runs by the clock can
// know of: the monotonic clock stood still, and between the last reading before that and
// the first one after it the wall clock was set back.
func (c *Clock) Hidden(from, to time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum time.Duration
	for _, f := range c.freezes {
		if f.suspended && f.from <= to && f.to >= from {
			sum += min(min(f.to, to)-max(f.from, from), c.setBack(f.seen-1, min(f.noticed, to)))
		}
	}
	return sum
}

// reading is what a clock has shown to those who run by it.
type reading struct {
	wall time.Time
	mono time.Duration
}

// Latest is Both, but if the clock was set at this very moment, or while a freeze lasted that ends now, the wall
// time is the latest of those before and after: it is not known which of them a caller has seen.
func (c *Clock) Latest() (time.Time, time.Duration) {
	wall, mono := c.Both()
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.True()
	for i := len(c.segments) - 1; i > 0 && (c.segments[i].from == at || c.segments[i].frozen); i-- {
		if w := c.epoch.Round(0).Add(c.wall(&c.segments[i-1], c.segments[i].from)); w.After(wall) {
			wall = w
		}
	}
	return wall, mono
}

// Disturbed is the true time of the last step, or of the end of the last freeze.
func (c *Clock) Disturbed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.disturbed
}

// Stepped reports whether the clock was set after the true time from, and not after
// to.
func (c *Clock) Stepped(from, to time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.steps {
		if s.at > from && s.at <= to {
			return true
		}
	}
	return false
}

// Awake is when somebody who was to do something at the true time at could do it:
// at once, or where the clock was frozen just then, at the end of that.
func (c *Clock) Awake(at time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.freezes {
		if f.from <= at && at < f.to {
			return min(f.to, time.Since(c.epoch))
		}
	}
	return at
}

// Drowsy is when somebody who did something at the true time at may have looked at
// the clock for that: then, or where a freeze ended just then, when it began.
func (c *Clock) Drowsy(at time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.freezes {
		if f.to == at {
			return f.from
		}
	}
	return at
}

// Shown is what the clock has lately shown to those who run by it, and what it
// shows now: what they do now may go by any of these.
func (c *Clock) Shown() []reading {
	wall, mono := c.Both()
	shown := []reading{{wall, mono}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range min(c.nextRead, len(c.readings)) {
		shown = append(shown, c.readings[i])
	}
	return shown
}

// Reached is the first true time in [from, to) at which the wall clock showed
// wall or later, or the monotonic clock mono or more, to those who run by it; to where
// there was none.
func (c *Clock) Reached(from, to time.Duration, wall time.Time, mono time.Duration) time.Duration {
	w := wall.Sub(c.epoch.Round(0))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.segments {
		s := &c.segments[i]
		a, b := max(from, s.from), to
		if i+1 < len(c.segments) {
			b = min(b, c.segments[i+1].from)
		}
		if a >= b || s.frozen {
			continue
		}
		over := func(at time.Duration) bool { return c.wall(s, at) >= w || s.monotonic(at) >= mono }
		if over(a) {
			return a
		}
		if !over(b - 1) {
			continue
		}
		lo, hi := a, b-1 // over(lo) is false, over(hi) is true
		for hi-lo > 1 {
			if mid := lo + (hi-lo)/2; over(mid) {
				hi = mid
			} else {
				lo = mid
			}
		}
		return hi
	}
	return to
}
