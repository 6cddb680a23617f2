package leaderelection

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection/internal/loop"
)

// maxEvents is how many calls may wait for a Trace or Logger that is stuck, maxWaiting how many
// records for another callback.
const maxEvents, maxWaiting = 1024, 128

// deliveries calls a user's callback with records.
type deliveries struct {
	loop.Calls
	ctx  context.Context
	last delivery // the one that was added last
}

type delivery struct {
	entry *RaceEntry
	call  func(context.Context, RaceEntry)
	merge bool // may be replaced by a later extension of the same leadership
}

// deliver queues a delivery. A later extension replaces one of the same leadership that still waits.
func (d *deliveries) deliver(next delivery) {
	last := d.last
	d.last = next
	d.Put(func() {
		entry := next.entry.Clone()
		entry.Token = nil
		next.call(d.ctx, *entry)
	}, next.merge && last.merge && last.entry.ElectionNumber == next.entry.ElectionNumber)
}

// event is something that has happened outside of a loop, as a function that takes it in at the instant now. The
// loop calls it. What others do with a loop's state they do by an event.
type event func(now instant)

// nothing is the event that something has changed that the loop looks at in each step.
func nothing(instant) {}

// post hands e to the loop. It never blocks.
func (f *follower) post(e event) { f.mailbox.Post(e) }

// handle takes in what was posted, each with one look at the clock.
func (f *follower) handle() {
	posted := f.mailbox.Take()
	for _, e := range posted {
		e(f.now())
	}
	clear(posted)
}

// session is one run of a ChangeFeed.
type session struct {
	cancel context.CancelFunc
	begun  time.Duration
}

// tendFeed keeps one ChangeFeed running, with pauses after failures.
func (f *follower) tendFeed(wake *alarm) {
	if f.feed == nil {
		return
	}
	if f.feedRunning {
		// A session that delivers nothing, not even its first record, hangs.
		if s := f.feedSession; s != nil && !f.feedUp {
			if late := s.begun + f.feeds.Limit; wake.now.mono < late {
				wake.at(late)
			} else {
				s.cancel()
				f.feedSession = nil
			}
		}
		return
	}
	if due := max(f.feeds.NotBefore, f.notBefore()); wake.now.mono < due {
		wake.at(due)
		return
	}
	ctx, cancel := context.WithCancel(f.ctx)
	s := &session{cancel: cancel, begun: wake.now.mono}
	f.feedRunning, f.feedSession = true, s
	failure := errGoexit
	loop.Go(func() {
		var ended error
		for e, err := range f.feed.Changes(ctx) {
			if err != nil || ctx.Err() != nil {
				ended = err
				break
			}
			if e == nil {
				continue
			}
			if ended = e.damaged(); ended != nil {
				break
			}
			f.post(func(now instant) { f.delivered(s, e, now) })
		}
		failure = ended
	}, func() {
		cancel()
		f.post(func(now instant) { f.feedGone(s, failure, now) })
	})
}

// delivered takes in a record that a feed has delivered: the feed is alive.
func (f *follower) delivered(from *session, e *RaceEntry, now instant) {
	if !f.feedUp && from == f.feedSession {
		f.feedUp, f.worked = true, true
		f.tellPlace()
		f.feeds.Worked()
		f.feedEvent(nil, now)
	}
	f.heard = now.mono
	latest := f.known.newest.of
	if latest == nil || e.Compare(latest) > 0 {
		f.calls.Worked(now.mono, OpRead.does()) // while the feed delivers, there may be no read for long
	}
	if latest == nil || e.Compare(latest) >= 0 {
		f.outrun = 0
	}
	f.owner.learn(e, now, now, wasPushed)
}

// feedGone notes that the feed has ended: until it is back, the record is polled.
func (f *follower) feedGone(s *session, err error, now instant) {
	f.feedRunning, f.feedUp, f.feedSession = false, false, nil
	if f.winding {
		return
	}
	if err == nil {
		err = errors.New("leaderelection: the feed ended")
	}
	f.feeds.Failed(max(s.begun, now.mono-f.feeds.Base/2), true)
	f.feeds.NotBefore = max(f.feeds.NotBefore, now.mono+asksFor(err))
	f.feedEvent(err, now) // an ErrPermanent as well: what cannot be pushed can be polled
}

// feedCheck starts the feed again if a read shows that the feed has withheld something that it had
// the time to deliver. That is an extension, or news that two reads in a row brought before the
// feed did.
func (f *follower) feedCheck(read *RaceEntry, now instant) {
	e := f.known.newest.of
	if !f.feedUp || e == nil || read.Compare(e) <= 0 {
		return
	}
	f.outrun++
	extension := read.ElectionNumber == e.ElectionNumber && !e.Vacant() && !now.wall.Before(e.TermExpiry)
	if extension || f.outrun > 1 {
		f.outrun = 0
		// What this session still delivers may be news, but does not show that the feed works.
		f.feedUp = false
		f.feedSession.cancel()
		f.feedSession = nil
		f.feedFails.Failed(now.mono, "", "the feed withheld news; starting it again", "known", e.Extension, "read", read.Extension)
	}
}

func (f *follower) feedEvent(err error, now instant) {
	notify(f, f.trace.Feed, FeedEvent{Err: err})
	if err != nil {
		f.feedFails.Failed(now.mono, "", "the feed failed; polling until it is back", "err", err)
	} else if !f.feedFails.Worked(now.mono, "") {
		f.log(slog.LevelDebug, "the feed delivers")
	}
}

// pollDue returns when a follower must read because it has no feed, or because no term is known to
// be running. In that case only a read shows that the feed has fallen silent.
func (f *follower) pollDue(wake *alarm) (due time.Duration, polling bool) {
	switch k, e := f.known, f.known.newest.of; {
	case k.disputed:
		return f.lastRead + f.reads.Base, true
	case f.feedUp && e != nil && !e.Vacant() && !k.end(k.newest).reached(wake.now):
		// If a feed delivers nothing for longer than anybody can lead without a write, it
		// has fallen silent, or a clock that is ahead has written the record.
		silent := max(f.heard, f.lastRead) + k.termOf(e) + k.skew
		if wake.now.mono < silent {
			wake.until(k.end(k.newest))
			wake.at(silent)
			return 0, false
		}
		return silent, true
	case f.feedUp:
		return max(f.lastRead, f.heard) + f.poll, true
	case f.reads.Fails > 0:
		return 0, true // only the back-off spaces the reads
	case f.everAsked:
		return f.lastRead + f.poll<<f.reads.Slow(), true
	case f.feed != nil && f.feedRunning:
		return f.timeout, true // the feed's first record is on its way
	}
	return 0, true
}
