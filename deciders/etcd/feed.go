package etcd

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
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
	end, err := d.before(ctx)
	if err != nil {
		return d.failed(ctx, "watching", err)
	}
	end() // the guard does as much
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

// guard ends the feed where the connection is gone for longer than the grace, and
// until then does what it can to have it back. Etcd's client alone would wait for it,
// silently, for as long as it takes.
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
		s := hasten(grace, conn)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case s != connectivity.Ready:
			end(fmt.Errorf("%w for more than %v: %w", errNoConnection, d.grace, d.whyNoConnection()))
			return
		}
	}
}

// reconnectPause is how long hasten waits between attempts.
const reconnectPause = 250 * time.Millisecond

// hasten has the client try again and again for a connection, until there is one or
// ctx ends, and returns how it stands. By itself gRPC would pause between attempts for
// longer and longer, up to two minutes: eight terms.
func hasten(ctx context.Context, conn *grpc.ClientConn) connectivity.State {
	for {
		s := conn.GetState()
		switch s {
		case connectivity.Ready, connectivity.Shutdown:
			return s
		case connectivity.Idle:
			conn.Connect()
		case connectivity.TransientFailure:
			conn.ResetConnectBackoff()
		}
		// The whole pause, through whatever states: an attempt that is refused
		// at once must not be followed by the next one at once.
		pause, cancel := context.WithTimeout(ctx, reconnectPause)
		for s != connectivity.Ready && conn.WaitForStateChange(pause, s) {
			s = conn.GetState()
		}
		cancel()
		if ctx.Err() != nil {
			return conn.GetState()
		}
	}
}
