package decidertest

import (
	"context"

	"github.com/c8e606e4/leaderelection"
)

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
