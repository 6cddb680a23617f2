package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Changes implements leaderelection.ChangeFeed by a watch. It answers each notice by one read,
// which sets the next watch. It shows only what is committed. It goes on when the client finds
// another server. It ends with an error if the session was lost, or if the znode holds something
// that is not our record.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, d.follow)
}

// look is a record, and what tells of the next one.
type look struct {
	store.Stored[token]
	watch <-chan zk.Event
}

// follow returns when yield has returned false, and else with an error.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	silence := time.NewTimer(d.b.opts.FeedSilence)
	defer silence.Stop()
	told, first := token{}, true
	for {
		seen, err := do(ctx, d.b, d.b.look)
		if err != nil {
			return err
		}
		if first || seen.At != told {
			e, err := d.election.Entry(seen.Stored)
			if err != nil {
				return err
			}
			if !yield(e) {
				return nil
			}
			told, first = seen.At, false
		}
		if err := d.await(ctx, seen, silence); err != nil {
			return err
		}
	}
}

// await returns when the watch has told that what was seen is over, or a read after a
// silence has found so.
func (d *Decider) await(ctx context.Context, seen look, silence *time.Timer) error {
	for {
		silence.Reset(d.b.opts.FeedSilence)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case event := <-seen.watch:
			if event.Err != nil {
				return fmt.Errorf("the watch was lost: %w", event.Err)
			}
			return nil
		case <-silence.C:
			now, err := d.b.Load(ctx)
			if err != nil {
				return err
			}
			if now.At != seen.At {
				return nil // the watch did not tell
			}
		}
	}
}

// maxLooks is how often a znode may be deleted and made again while it is looked at.
const maxLooks = 3

// look reads the znode and sets a watch, or one on its coming.
func (b *backend) look() (l look, err error) {
	for range maxLooks {
		data, stat, watch, err := b.conn.GetW(b.path)
		if err == nil {
			s, err := b.stored(data, stat)
			if errors.Is(err, errReplaced) {
				continue
			}
			return look{s, watch}, err
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return l, err
		}
		exists, _, watch, err := b.conn.ExistsW(b.path)
		if err != nil {
			return l, err
		}
		if !exists {
			return look{store.Stored[token]{None: true}, watch}, nil
		}
	}
	return l, errReplaced
}
