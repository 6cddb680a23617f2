package natskv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
	"github.com/c8e606e4/leaderelection/deciders/natskv/internal/bucket"
)

// binding is a bucket that was looked up and found fit.
type binding struct {
	kv     jetstream.KeyValue
	stream jetstream.Stream // for what kv does not tell: the revision of a deleted key
}

// bind returns the bucket. Several goroutines may look it up at once; that does
// no harm.
func (k *backend) bind(ctx context.Context) (*binding, error) {
	if b := k.bound.Load(); b != nil {
		return b, nil
	}
	if err := bucket.Check(k.bucket, k.key); err != nil {
		return nil, store.Wrong("%w", err)
	}
	b, err := k.lookUp(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) && k.create != nil {
		b, err = k.makeBucket(ctx)
	}
	if err != nil {
		return nil, err
	}
	k.bound.Store(b)
	return b, nil
}

// lookUp binds to a bucket that exists.
func (k *backend) lookUp(ctx context.Context) (*binding, error) {
	kv, err := k.js.KeyValue(ctx, k.bucket)
	if errors.Is(err, nats.ErrNoResponders) {
		err = fmt.Errorf("%w: %w", jetstream.ErrJetStreamNotEnabled, err) // nobody takes such questions
	}
	if err != nil {
		return nil, err
	}
	stream, err := k.js.Stream(ctx, k.streamName())
	if err != nil {
		return nil, err
	}
	if err := bucket.Unfit(&stream.CachedInfo().Config); err != nil {
		return nil, store.Wrong("%w", err)
	}
	return &binding{kv: kv, stream: stream}, nil
}

// makeBucket creates the bucket; if another is quicker, theirs will do.
func (k *backend) makeBucket(ctx context.Context) (*binding, error) {
	if err := bucket.Wanted(k.create); err != nil {
		return nil, store.Wrong("%w", err)
	}
	if _, err := k.js.CreateKeyValue(ctx, *k.create); err != nil && !errors.Is(err, jetstream.ErrBucketExists) {
		return nil, fmt.Errorf("creating the bucket: %w", err)
	}
	return k.lookUp(ctx)
}

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
