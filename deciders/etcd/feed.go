package etcd

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/c8e606e4/leaderelection"
)

// Changes implements leaderelection.ChangeFeed by a watch. It yields every state
// of the key, also that it was deleted (as an empty election). It ends with an
// error where etcd ends the watch, where the connection is gone for longer than
// Options.FeedGrace, or where the key holds what is no record of ours.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		feed, cancel := context.WithCancelCause(ctx)
		var guard sync.WaitGroup
		guard.Go(func() { d.guard(feed, cancel) })
		defer guard.Wait()
		defer cancel(nil)

		left := false
		err := d.follow(feed, func(e *leaderelection.RaceEntry) bool {
			left = left || !yield(e, nil)
			return !left
		})
		if left || ctx.Err() != nil {
			return
		}
		if feed.Err() != nil { // the guard's word is plainer than the watch's
			err = d.failed(ctx, "watching", context.Cause(feed))
		}
		yield(nil, err)
	}
}

// follow reads and watches, and reads again where what the watch was to begin at
// has been compacted. It returns when yield has returned false, and else with an
// error.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	if err := d.before(ctx); err != nil {
		return d.failed(ctx, "watching", err)
	}
	for {
		e, at, err := d.read(ctx)
		if err != nil {
			return err
		}
		if !yield(e) {
			return nil
		}
		again, err := d.watch(ctx, at+1, yield)
		if !again {
			return err
		}
	}
}

// watch yields what happens from the revision from on. It says whether to read
// and watch again.
func (d *Decider) watch(ctx context.Context, from int64, yield func(*leaderelection.RaceEntry) bool) (again bool, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the watch
	defer cancel()
	changes := d.client.Watch(clientv3.WithRequireLeader(ctx), d.key, clientv3.WithRev(from))
	for c := range changes {
		if c.CompactRevision != 0 {
			return true, nil
		}
		if err := c.Err(); err != nil {
			return false, d.failed(ctx, "watching", err)
		}
		for _, ev := range c.Events {
			kvs := []*mvccpb.KeyValue{ev.Kv}
			if ev.Type == clientv3.EventTypeDelete {
				kvs = nil
			}
			e, err := d.entry(kvs)
			if err != nil {
				return false, err
			}
			if !yield(e) {
				return false, nil
			}
		}
	}
	return false, d.failed(ctx, "watching", errFeedEnded)
}

// guard ends the feed where the connection is gone for longer than the grace.
// Etcd's client alone would wait for it, silently, for as long as it takes.
func (d *Decider) guard(ctx context.Context, end context.CancelCauseFunc) {
	conn := d.client.ActiveConnection()
	if conn == nil {
		return
	}
	for {
		for s := conn.GetState(); s == connectivity.Ready; s = conn.GetState() {
			if !conn.WaitForStateChange(ctx, s) {
				return
			}
		}
		grace, cancel := context.WithTimeout(ctx, d.grace)
		for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
			if s == connectivity.Idle {
				conn.Connect() // a feed wants news, and has nothing to send
			}
			if s == connectivity.Shutdown || !conn.WaitForStateChange(grace, s) {
				cancel()
				if ctx.Err() == nil {
					end(fmt.Errorf("%w (%s for more than %v)", errNoConnection, s, d.grace))
				}
				return
			}
		}
		cancel()
	}
}
