package leaderelection

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// session is one run of a ChangeFeed.
type session struct {
	cancel context.CancelFunc
	begun  time.Duration
}

// tendFeed keeps one ChangeFeed running, with pauses where it fails.
func (f *follower) tendFeed(wake *alarm) {
	if f.feed == nil {
		return
	}
	if f.feedRunning {
		// A session that delivers nothing, not even its first record, hangs.
		if s := f.feedSession; s != nil && !f.feedUp {
			if late := s.begun + f.feeds.limit; wake.now.mono < late {
				wake.at(late)
			} else {
				s.cancel()
				f.feedSession = nil
			}
		}
		return
	}
	if wake.now.mono < f.feeds.notBefore {
		wake.at(f.feeds.notBefore)
		return
	}
	ctx, cancel := context.WithCancel(f.ctx)
	s := &session{cancel: cancel, begun: wake.now.mono}
	f.feedRunning, f.feedSession = true, s
	go func() {
		failure := errGoexit
		defer func() {
			cancel()
			f.post(feedEnded{s, failure})
		}()
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
			f.post(pushed{s, e})
		}
		failure = ended
	}()
}

// delivered notes that the feed is alive, and whether it is the first to tell, given
// the latest that was known.
func (f *follower) delivered(p pushed, latest *RaceEntry, now instant) {
	if !f.feedUp && p.from == f.feedSession {
		f.feedUp, f.worked = true, true
		f.feeds.worked()
		f.feedEvent(nil)
	}
	f.heard = now.mono
	if latest == nil || p.entry.Compare(latest) >= 0 {
		f.outrun = 0
	}
}

// feedGone notes that the feed has ended: until it is back, the record is polled.
func (f *follower) feedGone(end feedEnded, now instant) {
	f.feedRunning, f.feedUp, f.feedSession = false, false, nil
	if f.winding {
		return
	}
	err := end.err
	if err == nil {
		err = errors.New("leaderelection: the feed ended")
	}
	f.feeds.failed(max(end.of.begun, now.mono-f.feeds.base/2))
	f.feedEvent(err) // an ErrPermanent as well: what cannot be pushed can be polled
}

// feedCheck starts the feed again where a read shows that it has withheld
// something that it had the time to deliver: an extension, or news that two reads
// in a row were the first to tell.
func (f *follower) feedCheck(k *knowledge, read *RaceEntry, now instant) {
	e := k.latest
	if !f.feedUp || e == nil || read.Compare(e) <= 0 {
		return
	}
	f.outrun++
	extension := read.ElectionNumber == e.ElectionNumber && !e.Vacant() && k.ends(e).reached(now)
	if extension || f.outrun > 1 {
		f.outrun = 0
		// What this session still delivers is news, but no sign of health.
		f.feedUp = false
		f.feedSession.cancel()
		f.feedSession = nil
		f.log(slog.LevelWarn, "the feed withheld news; starting it again", "known", e.Extension, "read", read.Extension)
	}
}

func (f *follower) feedEvent(err error) {
	if t := f.trace; t != nil && t.Feed != nil {
		f.events.add(func() { t.Feed(FeedEvent{Err: err}) })
	}
	level, msg := slog.LevelDebug, "the feed delivers"
	if err != nil {
		msg = "the feed failed; polling until it is back"
		if !f.feedMissed { // said once: a store that cannot push is polled for good
			level = slog.LevelWarn
		}
	} else if f.feedMissed {
		level = slog.LevelInfo
	}
	f.feedMissed = err != nil
	f.log(level, msg, "err", err)
}
