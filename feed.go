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

// deliver calls a user's callback with a record. It replaces a delivery of the same kind that still waits; nil: none.
func (c *Campaign) deliver(to func(RaceEntry), e *RaceEntry, kind any) {
	c.changed.Put(func() { to(*e.public()) }, kind)
}

// event is something that has happened outside of a loop, as a function that takes it in at the instant now. The
// loop calls it. What others do with a loop's state they do by an event.
type event func(now instant)

// nothing is the event that something has changed that the loop looks at in each step.
func nothing(instant) {}

// post hands e to the loop. It never blocks.
func (c *Campaign) post(e event) { c.mailbox.Post(e) }

// handle takes in what was posted, each with one look at the clock.
func (c *Campaign) handle() {
	posted := c.mailbox.Take()
	for _, e := range posted {
		e(c.now())
	}
	clear(posted)
}

// feedState is what a campaign knows of its store's feed.
type feedState struct {
	feed        ChangeFeed // nil: poll
	feedUp      bool       // it has delivered, and not failed since
	feedSession *session
	feedRunning bool
	heard       time.Duration // when it last delivered
	feedFails   loop.Outage
	outrun      int // reads in a row that were newer than what the feed had delivered
	feeds       loop.Retry
}

// session is one run of a ChangeFeed.
type session struct {
	cancel context.CancelFunc
	begun  time.Duration
}

// tendFeed keeps one ChangeFeed running, with pauses after failures.
func (c *Campaign) tendFeed(wake *alarm) {
	if c.feed == nil {
		return
	}
	if c.feedRunning {
		// A session that delivers nothing, not even its first record, hangs.
		if s := c.feedSession; s != nil && !c.feedUp {
			if late := s.begun + c.feeds.Limit; wake.now.mono < late {
				wake.at(late)
			} else {
				s.cancel()
				c.feedSession = nil
			}
		}
		return
	}
	if due := max(c.feeds.NotBefore, c.notBefore()); wake.now.mono < due {
		wake.at(due)
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	s := &session{cancel: cancel, begun: wake.now.mono}
	c.feedRunning, c.feedSession = true, s
	failure := errGoexit
	loop.Go(func() {
		var ended error
		for e, err := range c.feed.Changes(ctx) {
			if err != nil || ctx.Err() != nil {
				ended = err
				break
			}
			if e == nil {
				continue
			}
			e = e.Clone()
			if ended = e.damaged(); ended != nil {
				break
			}
			c.post(func(now instant) { c.delivered(s, e, now) })
		}
		failure = ended
	}, func() {
		cancel()
		c.post(func(now instant) { c.feedGone(s, failure, now) })
	})
}

// delivered takes in a record that a feed has delivered: the feed is alive.
func (c *Campaign) delivered(from *session, e *RaceEntry, now instant) {
	if !c.feedUp && from == c.feedSession {
		c.feedUp, c.worked = true, true
		c.tellPlace()
		c.feeds.Worked()
		c.feedEvent(nil, now)
	}
	c.heard = now.mono
	latest := c.l.newest.of
	if latest == nil || e.Compare(latest) > 0 {
		c.outage.Worked(now.mono, OpRead.does()) // while the feed delivers, there may be no read for long
	}
	if latest == nil || e.Compare(latest) >= 0 {
		c.outrun = 0
	}
	c.learn(e, now, now, wasPushed)
}

// feedGone notes that the feed has ended: until it is back, the record is polled.
func (c *Campaign) feedGone(s *session, err error, now instant) {
	c.feedRunning, c.feedUp, c.feedSession = false, false, nil
	if c.winding {
		return
	}
	if err == nil {
		err = errors.New("leaderelection: the feed ended")
	}
	c.feeds.Failed(max(s.begun, now.mono-c.feeds.Base/2), true)
	c.feeds.NotBefore = max(c.feeds.NotBefore, now.mono+asksFor(err))
	c.feedEvent(err, now) // an ErrPermanent as well: what cannot be pushed can be polled
}

// feedCheck starts the feed again if a read shows that the feed has withheld something that it had
// the time to deliver. That is an extension, or news that two reads in a row brought before the
// feed did.
func (c *Campaign) feedCheck(read *RaceEntry, now instant) {
	e := c.l.newest.of
	if !c.feedUp || e == nil || read.Compare(e) <= 0 {
		return
	}
	c.outrun++
	extension := read.ElectionNumber == e.ElectionNumber && !e.Vacant() && !now.wall.Before(e.TermExpiry)
	if extension || c.outrun > 1 {
		c.outrun = 0
		// What this session still delivers may be news, but does not show that the feed works.
		c.feedUp = false
		c.feedSession.cancel()
		c.feedSession = nil
		c.feedFails.Failed(now.mono, "", "the feed withheld news; starting it again", "known", e.Extension, "read", read.Extension)
	}
}

func (c *Campaign) feedEvent(err error, now instant) {
	notify(c, c.cfg.Trace.Feed, FeedEvent{Err: err})
	if err != nil {
		c.feedFails.Failed(now.mono, "", "the feed failed; polling until it is back", "err", err)
	} else if !c.feedFails.Worked(now.mono, "") {
		c.log(slog.LevelDebug, "the feed delivers")
	}
}

// pollDue returns when a follower must read because it has no feed, or because no term is known to
// be running. In that case only a read shows that the feed has fallen silent.
func (c *Campaign) pollDue(wake *alarm) (due time.Duration, polling bool) {
	switch k, e := c.l, c.l.newest.of; {
	case k.disputed:
		return c.lastRead + c.reads.Base, true
	case c.feedUp && e != nil && !e.Vacant() && !k.end(k.newest).reached(wake.now):
		// If a feed delivers nothing for longer than anybody can lead without a write, it
		// has fallen silent, or a clock that is ahead has written the record.
		silent := max(c.heard, c.lastRead) + k.termOf(e) + k.skew
		if wake.now.mono < silent {
			wake.until(k.end(k.newest))
			wake.at(silent)
			return 0, false
		}
		return silent, true
	case c.feedUp:
		return max(c.lastRead, c.heard) + c.pollEvery, true
	case c.reads.Fails > 0:
		return 0, true // only the back-off spaces the reads
	case c.everAsked:
		// Each polls at moments of its own, unless it has just read: who was started together, or has waited for
		// the end of the same term, must not poll together for good.
		early := (c.lastRead + loop.Part(c.reads.Seed, c.pollEvery)) % c.pollEvery
		if early > c.pollEvery/10*9 {
			early = 0
		}
		return c.lastRead - early + c.pollEvery<<c.reads.Slow(), true
	case c.feed != nil && c.feedRunning:
		return c.timeout, true // the feed's first record is on its way
	}
	return 0, true
}
