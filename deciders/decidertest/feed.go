package decidertest

import (
	"context"
	"runtime"
	"time"

	"github.com/c8e606e4/leaderelection"
)

var feedChecks = []check{
	// The first entry is the record as it is, and comes without a change.
	{"CurrentRecordFirst", func(h *harness) {
		writer, d := h.handle(), h.handle()
		token := h.write(writer, nil, h.state(1, 0))
		h.write(writer, token, h.state(1, 1))
		for range 2 { // each call makes a feed of its own, with a first entry of its own
			f := h.follow(d)
			f.until(h.state(1, 1))
			f.stop()
		}
	}},
	{"EmptyElectionFirst", func(h *harness) {
		d := h.handle()
		f := h.follow(d)
		e := f.next()
		h.same("the first entry of an empty election's feed", e, &leaderelection.RaceEntry{})
		h.write(d, e.Token, h.state(1, 0))
		f.until(h.state(1, 0))
		f.stop()
	}},
	// Every state arrives, whole, if there is time for each, no matter which handle writes it.
	{"LaterStatesFollow", func(h *harness) {
		writer, other := h.handle(), h.handle()
		f := h.follow(h.handle())
		f.next()
		var token leaderelection.LeaderToken
		for i := range uint64(h.Rounds) {
			e := h.state(1+i/4, i%4)
			if i%4 == 3 { // released
				e.LeaderID, e.HostPort, e.ConnectionParams = "", nil, nil
			}
			token = h.write(writer, token, e)
			f.until(e)
			writer, other = other, writer
		}
		f.stop()
	}},
	{"TokensAreAcceptedByWriteEntry", func(h *harness) {
		d := h.handle()
		h.write(d, nil, h.state(1, 0))
		f := h.follow(h.handle())
		for i := range uint64(5) {
			e := f.until(h.state(1, i))
			h.write(d, e.Token, h.state(1, i+1))
		}
		old := f.until(h.state(1, 5)).Token
		h.write(d, old, h.state(1, 6))
		h.loses("with the token of an entry from a feed, when that was stale", d, old, h.state(9, 9))
		f.until(h.state(1, 6))
		f.stop()
	}},
	// A record that is too long for a message arrives all the same.
	{"LargeRecordArrives", func(h *harness) {
		d := h.handle()
		f := h.follow(h.handle())
		f.next()
		token := h.write(d, nil, h.large(1, 0))
		f.until(h.large(1, 0))
		h.write(d, token, h.state(1, 1))
		f.until(h.state(1, 1))
		f.stop()
	}},
	// A consumer that is slow gets the last state all the same, and none out of
	// order.
	{"LastOfABurstArrives", func(h *harness) {
		writer := h.handle()
		f := h.follow(h.handle())
		f.next()
		last := uint64(5 * h.Rounds)
		var token leaderelection.LeaderToken
		for i := range last + 1 {
			token = h.write(writer, token, h.state(1+i/7, i))
		}
		f.until(h.state(1+last/7, last))
		f.stop()
	}},
	// Between the first entry and the later ones nothing may fall through: writes go
	// on while the feed is opened, each time a little earlier or later.
	{"NothingMissedAfterTheFirst", func(h *harness) {
		writer := h.handle()
		ds := []leaderelection.RaceDecider{h.handle(), h.handle()}
		var token leaderelection.LeaderToken
		for round := range uint64(h.Rounds) {
			last := round % 4
			written := make(chan error, 1)
			ctx, cancel := h.soon()
			go func() {
				var err error
				for i := uint64(0); i <= last && err == nil; i++ {
					token, err = writer.WriteEntry(ctx, with(token, h.state(round+1, i)))
				}
				written <- err
			}()
			f := h.follow(ds[round%2])
			if round%3 == 0 {
				f.next()
			}
			err := <-written
			cancel()
			if err != nil {
				h.Fatalf("WriteEntry, while a feed is being opened: %v", err)
			}
			f.until(h.state(round+1, last))
			f.stop()
		}
	}},
	{"SeveralFeedsAtOnce", func(h *harness) {
		d := h.handle()
		token := h.write(d, nil, h.state(1, 0))
		feeds := []*follower{h.follow(d), h.follow(d), h.follow(h.handle())}
		for i := range uint64(3) {
			for _, f := range feeds {
				f.until(h.state(1, i))
			}
			if i == 1 { // one that ends does not take the others along
				feeds[0].stop()
				feeds = feeds[1:]
			}
			token = h.write(d, token, h.state(1, i+1))
		}
		for _, f := range feeds {
			f.until(h.state(1, 3))
			f.stop()
		}
	}},
	{"EntryBelongsToCaller", func(h *harness) {
		d := h.handle()
		token := h.write(d, nil, h.state(1, 0))
		one, two := h.follow(d), h.follow(d)
		for i := range uint64(3) {
			e := one.until(h.state(1, i))
			scribble(e)
			h.readBack(d, h.state(1, i))
			two.until(h.state(1, i))
			token = h.write(d, token, h.state(1, i+1))
		}
		one.stop()
		two.stop()
	}},
	{"EndsWithItsContext", func(h *harness) {
		d := h.handle()
		h.write(d, nil, h.state(1, 0))
		f := h.follow(d)
		f.until(h.state(1, 0))
		f.stop() // while it waits for news

		f = h.follow(d)
		f.stop() // while it is being opened

		ctx, cancel := context.WithTimeout(h.Context(), 50*time.Millisecond)
		defer cancel()
		f = h.followUntil(ctx, func() {}, d)
		h.await("the end of ctx", ctx.Done())
		f.stop() // by its deadline
	}},
	{"EndsAtOnceWhereItsContextHasEnded", func(h *harness) {
		d := h.handle()
		h.write(d, nil, h.state(1, 0))
		f := h.followUntil(cancelled(h), func() {}, d)
		f.stop()
	}},
	{"EndsWhenTheLoopIsLeft", func(h *harness) {
		d := h.handle()
		feed := h.feed(d)
		token := h.write(d, nil, h.state(1, 0))
		for _, leaveAt := range []int{1, 2} {
			ctx, cancel := h.soon()
			seen, again := 0, false
			opened := make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				feed.Changes(ctx)(func(*leaderelection.RaceEntry, error) bool {
					if seen++; seen == 1 {
						close(opened)
					}
					again = again || seen > leaveAt
					return seen < leaveAt
				})
			}()
			h.await("the first entry of a feed", opened)
			token = h.write(d, token, h.state(1, uint64(leaveAt)))
			h.await("the end of a feed whose loop was left", ended)
			if ctx.Err() != nil {
				h.Errorf("a feed whose loop was left ended only with its ctx")
			}
			cancel()
			if again {
				h.Errorf("a feed went on after its loop was left")
			}
		}
	}},
	// A store's client may keep a connection or two for later. What grows with each
	// feed that has ended is a leak.
	{"LeavesNoGoroutine", func(h *harness) {
		const feeds = 20
		d := h.handle()
		token := h.write(d, nil, h.state(1, 0))
		openAndEnd := func(i uint64) {
			f := h.follow(d)
			f.until(h.state(1, i))
			token = h.write(d, token, h.state(1, i+1))
			f.stop()
		}
		openAndEnd(0)
		openAndEnd(1)
		before := runtime.NumGoroutine()
		for i := range uint64(feeds) {
			openAndEnd(i + 2)
		}
		ctx, cancel := h.soon()
		defer cancel()
		for pause := time.Millisecond; ; pause *= 2 {
			more := runtime.NumGoroutine() - before
			if more < feeds/2 {
				return
			}
			next := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				h.Fatalf("%d feeds have ended, and %d more goroutines run than before", feeds, more)
			case <-next.C: // they may be about to end
			}
		}
	}},
}

// follower consumes a feed in a goroutine of its own, and hands over what came.
type follower struct {
	h      *harness
	ctx    context.Context
	cancel context.CancelFunc
	items  chan item
	ended  chan struct{}
	last   *leaderelection.RaceEntry // what came last
	failed bool                      // an error came: nothing may follow
}

type item struct {
	entry *leaderelection.RaceEntry
	err   error
}

// feed returns d as a ChangeFeed, and skips the test where it is none.
func (h *harness) feed(d leaderelection.RaceDecider) leaderelection.ChangeFeed {
	h.Helper()
	feed, ok := d.(leaderelection.ChangeFeed)
	if !ok {
		h.Skipf("%T is no leaderelection.ChangeFeed: candidates and observers poll this store", d)
	}
	return feed
}

// follow opens a feed.
func (h *harness) follow(d leaderelection.RaceDecider) *follower {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	return h.followUntil(ctx, cancel, d)
}

// followUntil opens a feed with this ctx, which cancel ends.
func (h *harness) followUntil(ctx context.Context, cancel context.CancelFunc, d leaderelection.RaceDecider) *follower {
	h.Helper()
	feed := h.feed(d)
	f := &follower{h: h, ctx: ctx, cancel: cancel, items: make(chan item), ended: make(chan struct{})}
	over := make(chan struct{}) // if the test fails half way, nobody takes what comes
	h.Cleanup(func() {
		cancel()
		close(over)
	})
	go func() {
		defer close(f.ended)
		feed.Changes(ctx)(func(e *leaderelection.RaceEntry, err error) bool {
			select {
			case f.items <- item{e, err}:
				return true
			case <-over:
				return false
			}
		})
	}()
	return f
}

// next returns the next entry, once it has come. It fails the test if that is
// not what a feed may yield, or nothing comes, or the feed ends.
func (f *follower) next() *leaderelection.RaceEntry {
	f.h.Helper()
	ctx, cancel := f.h.soon()
	defer cancel()
	select {
	case it := <-f.items:
		f.check(it)
		if it.err != nil {
			f.h.Fatalf("the feed failed: %v", it.err)
		}
		return it.entry
	case <-f.ended:
		f.h.Fatalf("the feed ended on its own, without an error; the last entry was %s", show(f.last))
	case <-ctx.Done():
		f.h.Fatalf("the feed yielded nothing for %v; the last entry was %s", f.h.Patience, show(f.last))
	}
	return nil
}

// until returns the entry want, once it has come; that may have been before.
// Earlier ones may come before it, or have been merged; want is the last that
// was written.
func (f *follower) until(want *leaderelection.RaceEntry) *leaderelection.RaceEntry {
	f.h.Helper()
	e := f.last
	for e == nil || e.Compare(want) < 0 {
		e = f.next()
	}
	f.h.same("an entry of the feed", e, want)
	return e
}

// stop ends the feed's ctx, if it has not ended yet, and fails the test if
// the feed does not end soon, or not silently.
func (f *follower) stop() {
	f.h.Helper()
	f.cancel()
	ctx, cancel := f.h.soon()
	defer cancel()
	for {
		select {
		case it := <-f.items:
			f.check(it)
			if it.err != nil {
				f.h.Errorf("the feed's ctx has ended, and it yields the error %v; it must end without one", it.err)
			}
		case <-f.ended:
			return
		case <-ctx.Done():
			f.h.Fatalf("the feed has not ended %v after its ctx", f.h.Patience)
		}
	}
}

// check holds what came to what may come.
func (f *follower) check(it item) {
	f.h.Helper()
	switch {
	case f.failed:
		f.h.Fatalf("after its error the feed goes on with %s, %v", show(it.entry), it.err)
	case it.err != nil && it.entry != nil:
		f.h.Fatalf("the feed yields an entry along with an error: %s, %v", show(it.entry), it.err)
	case it.err != nil:
		f.failed = true
		return
	}
	f.h.whole("the feed", it.entry)
	if f.last != nil && it.entry.Compare(f.last) < 0 {
		f.h.Fatalf("the feed went back\nfrom %s\nto   %s", show(f.last), show(it.entry))
	}
	f.last = it.entry.Clone() // the entry belongs to the next caller
}
