package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// Decider puts the faults of a Link on top of a Store's client, and shows the
// recorder all that passes.
type Decider struct {
	inner le.RaceDecider
	actor *actor
	rec   *recorder
	tells bool // a lost race comes with the record that won it
	lags  bool // every second read comes from a replica
}

// Pushed is a Decider with the ChangeFeed of the one below it.
type Pushed struct{ *Decider }

// op is one call as the recorder sees it.
type op struct {
	actor *actor
	write *le.RaceEntry // nil for a read
	at    time.Duration // true time of the call
	wall  time.Time     // the caller's clock then
	mono  time.Duration
	ctx   context.Context

	readAt   reading           // by the caller's clock: when its last answered read began
	greatest le.ElectionNumber // that it had been told of
	newest   *le.RaceEntry     // the same
	sure     bool              // that this has happened: it was read or written, or is another's
	landed   bool              // it has changed the record
	worked   bool              // some call of the caller's had, before
	wrote    bool              // some write had
}

// ReadCurrent reads the record, or what the Link makes of it.
func (d *Decider) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	f := d.actor.link.draw(false)
	o := d.rec.calling(ctx, d.actor, nil)
	e, err := exchange(ctx, d, f, func(ctx context.Context) (*le.RaceEntry, error) {
		if old := d.rec.earlier(f.stale); old != nil {
			d.rec.count("fault: a stale read")
			return old, nil
		}
		if f.refuse && o.worked {
			return nil, errRefused
		}
		if d.lags {
			if e := d.rec.lagging(d.actor); e != nil {
				return e, nil
			}
		}
		return d.inner.ReadCurrent(ctx)
	})
	d.rec.answered(o, e, nil, err)
	return e, err
}

// WriteEntry writes the record, or what the Link lets of it.
func (d *Decider) WriteEntry(ctx context.Context, entry *le.RaceEntry) (le.LeaderToken, error) {
	f := d.actor.link.draw(true)
	entry = entry.Clone()
	o := d.rec.calling(ctx, d.actor, entry)
	token, err := exchange(ctx, d, f, func(ctx context.Context) (le.LeaderToken, error) {
		if f.refuse && o.wrote {
			return nil, errRefused
		}
		if d.undone(f, entry) {
			return nil, errUndone
		}
		token, err := d.inner.WriteEntry(context.WithValue(ctx, opKey{}, o), entry)
		if err != nil {
			d.rec.doubted(o)
		}
		if d.tells && errors.Is(err, le.ErrLostRace) {
			if e, readErr := d.inner.ReadCurrent(ctx); readErr == nil {
				err = &le.LostRaceError{Place: "sim", Current: e, Err: err}
			}
		}
		return token, err
	})
	d.rec.answered(o, nil, token, err)
	return token, err
}

// errUndone is what the writer of something that was not committed is told, if anything.
var errUndone = errors.New("sim: the server lost its majority")

// undone lets the feeds tell of a write before it is committed, and reports whether it
// never is.
func (d *Decider) undone(f fault, entry *le.RaceEntry) bool {
	store, ok := d.rec.store.(*Memory)
	if !ok || f.foretold == 0 {
		return false
	}
	undo := store.Foretell(entry)
	if undo == nil {
		return false
	}
	d.rec.foretold(d.actor, entry)
	d.rec.note(d.actor.name, "not committed yet, but feeds tell of %v (undone: %v)", d.rec.short(entry), f.undone)
	d.actor.link.rest(f.foretold)
	if f.undone {
		undo()
	}
	return f.undone
}

// errRefused is what no retry could cure, though it will pass.
var errRefused = fmt.Errorf("sim: refused: %w", le.ErrPermanent)

// exchange is a request and its answer. The request travels on its own: a caller
// that gives up, is frozen or crashes does not stop it.
func exchange[T any](ctx context.Context, d *Decider, f fault, do func(context.Context) (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	var zero T
	d.ambush(f, 1)
	d.actor.clock.Gate()
	if d.actor.dead.Load() {
		time.Sleep(d.actor.link.calm + time.Millisecond)
		return zero, errDead
	}
	replies := make(chan reply, 2)
	go func() {
		if f.early {
			replies <- reply{err: d.actor.link.lost(errLost)}
		}
		d.actor.link.rest(f.request)
		lost := f.loseRequest
		var r reply
		if !lost {
			on, cancel := d.onwards(ctx)
			defer cancel()
			r.value, r.err = do(on)
			if f.twice {
				again, err := do(on)
				r = reply{again, err}
			}
			lost = f.loseAnswer || f.silent && errors.Is(r.err, errUndone)
		}
		d.suffered(f, r.err, ctx.Err() != nil)
		d.ambush(f, 2)
		d.actor.link.rest(f.answer)
		switch {
		case !lost:
			replies <- r
		case !f.silent:
			replies <- reply{err: d.actor.link.lost(errLost)}
		}
	}()
	d.actor.link.rest(f.hang)
	var r reply
	select {
	case r = <-replies: // also when ctx has ended by now: else it would be left to chance
	default:
		select {
		case r = <-replies:
		case <-ctx.Done():
			r.err = context.Cause(ctx)
		}
	}
	d.ambush(f, 3)
	d.actor.clock.Gate()
	if d.actor.dead.Load() {
		return zero, errDead
	}
	return r.value, r.err
}

// onwards is the ctx of a request that has arrived: it goes on without its caller. Only a
// client that has a wire below it gives up with its caller, or after a while by itself:
// there it is the wire's to go on.
func (d *Decider) onwards(ctx context.Context) (context.Context, context.CancelFunc) {
	on := context.WithoutCancel(ctx)
	if !d.rec.wired() {
		return on, func() {}
	}
	if ctx.Err() == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(on, d.rec.term/4)
}

// suffered counts what has gone wrong with a call that has reached the store, or
// never will; err is the store's answer.
func (d *Decider) suffered(f fault, err error, abandoned bool) {
	for what, is := range map[string]bool{
		"a request was lost":             f.loseRequest,
		"an answer was lost":             f.loseAnswer && err == nil,
		"a call was lost without a word": f.silent,
		"a request arrived after its caller was told of its failure": f.early && err == nil,
		"a request arrived after its caller had given it up":         abandoned && !f.loseRequest && err == nil,
		"a call hung past its timeout":                               f.hang > d.rec.term/4,
		"a call was refused as if for good":                          errors.Is(err, errRefused),
		"a write was undone that feeds had told of":                  errors.Is(err, errUndone),
		"a dead process's request arrived":                           d.actor.dead.Load() && !f.loseRequest && err == nil,
	} {
		if is {
			d.rec.count("fault: " + what)
		}
	}
}

// ambush lets something happen to the caller, if this is the place.
func (d *Decider) ambush(f fault, place int) {
	if p := d.actor.proc; p != nil && f.ambush == place {
		p.host.w.do(func() { p.host.ambushed(p) })
	}
}

// errFeed is what a feed that was cut fails with.
var errFeed = errors.New("sim: the feed failed")

// Changes follows the record, as well as the Link lets it.
func (p Pushed) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	d, link := p.Decider, p.actor.link
	return func(yield func(*le.RaceEntry, error) bool) {
		d.actor.clock.Gate()
		d.rec.feed(d.actor, +1)
		defer d.rec.feed(d.actor, -1)
		inner, cut := context.WithCancel(ctx)
		defer cut()
		s := &session{cut: cut}
		link.open(s)
		defer link.close(s)
		for e, err := range d.inner.(le.ChangeFeed).Changes(inner) {
			n := link.drawNews()
			d.rec.hindered(n)
			if err == nil && d.deaf(e) {
				continue
			}
			if d.actor.dead.Load() || err != nil || n.fail {
				link.rest(n.delay)
				break
			}
			link.rest(n.hang)
			if n.silent {
				<-inner.Done()
			}
			if !sleep(inner, n.delay) {
				break
			}
			d.actor.clock.Gate()
			old := d.rec.earlier(n.old)
			if ctx.Err() == nil { // else nobody listens any more
				d.rec.pushed(d.actor, old, e)
			}
			if !deliver(e, old, n.repeat, yield) {
				return
			}
		}
		d.actor.clock.Gate()
		if ctx.Err() == nil {
			yield(nil, link.lost(errFeed))
		}
	}
}

// deaf reports whether the feed does not hear of e, which is not committed: it is one of
// a server that has not been told.
func (d *Decider) deaf(e *le.RaceEntry) bool {
	v, _ := e.Token.(version)
	if !v.rumour {
		return false
	}
	if d.actor.link.Seed()%3 == 0 {
		return true
	}
	d.rec.count("fault: a feed told of what was not committed")
	return false
}

// deliver hands on a record, an old one before it and itself once more after it,
// and reports whether more is wanted.
func deliver(e, old *le.RaceEntry, repeat bool, yield func(*le.RaceEntry, error) bool) bool {
	again := e.Clone()
	return (old == nil || yield(old, nil)) && yield(e, nil) && (!repeat || yield(again, nil))
}

// sleep returns true after d of true time, or false as soon as ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool { return clocks.System().SleepFor(ctx, d) }
