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

// Changes implements leaderelection.ChangeFeed by a watch. It yields every state of the key, and an
// empty election if the key is deleted. It ends with an error if etcd ends the watch, if the
// connection is gone for longer than Options.FeedGrace, or if the key holds something that is not
// our record.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, func(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
		feed, cancel := context.WithCancelCause(ctx)
		var guard sync.WaitGroup
		guard.Go(func() { d.b.guard(feed, cancel) })
		defer guard.Wait()
		defer cancel(nil)
		err := d.follow(feed, yield)
		if feed.Err() != nil { // the guard's word is plainer than the watch's
			err = context.Cause(feed)
		}
		return err
	})
}

// follow reads and watches, and reads again where what the watch was to begin at
// has been compacted. It returns when yield has returned false, and else with an
// error.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	var compacted int64
	for {
		s, at, err := d.b.read(ctx)
		if err != nil {
			return err
		}
		if at < compacted {
			return fmt.Errorf("revision %d is compacted, and a read is of %d: %w", compacted, at, errOdd)
		}
		e, err := d.election.Entry(s)
		if err != nil {
			return err
		}
		if !yield(e) {
			return nil
		}
		if compacted, err = d.watch(ctx, at+1, yield); compacted == 0 {
			return err
		}
		if compacted <= at {
			return fmt.Errorf("a watch from revision %d on is refused since %d is compacted: %w", at+1, compacted, errOdd)
		}
	}
}

// watch yields what happens from the revision from on. Where that is compacted it returns
// up to which revision all is: to read and watch again.
func (d *Decider) watch(ctx context.Context, from int64, yield func(*leaderelection.RaceEntry) bool) (compacted int64, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the watch
	defer cancel()
	changes := d.b.client.Watch(clientv3.WithRequireLeader(ctx), d.b.key, clientv3.WithRev(from))
	for c := range changes {
		if c.CompactRevision != 0 {
			return c.CompactRevision, nil
		}
		if err := c.Err(); err != nil {
			return 0, err
		}
		for _, ev := range c.Events {
			kvs := []*mvccpb.KeyValue{ev.Kv}
			if ev.Type == clientv3.EventTypeDelete {
				kvs = nil
			}
			e, err := d.election.Entry(stored(kvs))
			if err != nil {
				return 0, err
			}
			if !yield(e) {
				return 0, nil
			}
		}
	}
	return 0, errFeedEnded
}

// guard ends the feed if the connection is gone for longer than the grace, and
// until then does what it can to have it back. Etcd's client alone would wait for it,
// silently, for as long as it takes.
func (b *backend) guard(ctx context.Context, end context.CancelCauseFunc) {
	conn := b.client.ActiveConnection()
	if conn == nil {
		return
	}
	for {
		for s := conn.GetState(); s == connectivity.Ready; s = conn.GetState() {
			if !conn.WaitForStateChange(ctx, s) {
				return
			}
		}
		grace, cancel := context.WithTimeout(ctx, b.grace)
		s := reconnect(grace, conn)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case s != connectivity.Ready:
			end(fmt.Errorf("%w for more than %v: %w", errNoConnection, b.grace, b.whyNoConnection()))
			return
		}
	}
}

// reconnectPause is how long reconnect waits between attempts.
const reconnectPause = 250 * time.Millisecond

// reconnect has the client try again and again for a connection, until there is one or
// ctx ends, and returns how it stands. By itself gRPC would pause between attempts for
// longer and longer, up to two minutes: eight terms.
func reconnect(ctx context.Context, conn *grpc.ClientConn) connectivity.State {
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

// hasten has a request wait for a connection no longer than it must, until end is
// called. By itself etcd's client waits for as long as its next attempt takes to come.
func (b *backend) hasten(ctx context.Context) (end func()) {
	if b.connectionState() == connectivity.Ready {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var attempts sync.WaitGroup
	attempts.Go(func() { reconnect(ctx, b.client.ActiveConnection()) })
	return func() {
		cancel()
		attempts.Wait()
	}
}
