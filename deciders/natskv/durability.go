package natskv

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
	"github.com/c8e606e4/leaderelection/deciders/natskv/internal/bucket"
)

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner. It asks the bucket's stream where it keeps its
// messages, and on how many servers. It cannot ask how soon a server syncs its disk
// (sync_interval).
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	info, err := within.Do(ctx, d.k.calls, func() (*jetstream.StreamInfo, error) {
		b, err := d.k.lookUp(ctx)
		if err != nil {
			return nil, err
		}
		info, err := b.stream.Info(ctx)
		if err == nil && bucket.Behind(info) != nil {
			// A replica may be a message behind for a moment, and no more.
			select {
			case <-time.After(settle):
				info, err = b.stream.Info(ctx)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return info, err
	})
	if err != nil {
		return nil, d.election.Failed(ctx, "examining the stream of", err)
	}
	return bucket.Examine(info), nil
}

// settle is how long a replica may take to have what the others have.
const settle = time.Second
