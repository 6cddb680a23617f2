package natskv

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// binding is a bucket that was looked up and found fit.
type binding struct {
	kv     jetstream.KeyValue
	stream jetstream.Stream // for what kv does not tell: the revision of a deleted key
}

var (
	validBucket = regexp.MustCompile(`^[-_a-zA-Z0-9]+$`)
	validKey    = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$`)
)

// bind returns the bucket. Several goroutines may look it up at once; that does
// no harm.
func (k *backend) bind(ctx context.Context) (*binding, error) {
	if b := k.bound.Load(); b != nil {
		return b, nil
	}
	switch {
	case !validBucket.MatchString(k.bucket):
		return nil, store.Wrong("%w %q: it may have letters, digits, '-' and '_' only", jetstream.ErrInvalidBucketName, k.bucket)
	case !validKey.MatchString(k.key):
		return nil, store.Wrong("%w %q: it may have letters, digits and any of -/_=. only, and no '.' at either end or next to another", jetstream.ErrInvalidKey, k.key)
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
	if err := unfit(&stream.CachedInfo().Config); err != nil {
		return nil, store.Wrong("%w", err)
	}
	return &binding{kv: kv, stream: stream}, nil
}

// makeBucket creates the bucket; where another is quicker, theirs will do.
func (k *backend) makeBucket(ctx context.Context) (*binding, error) {
	switch c := k.create; {
	case c.TTL > 0:
		return nil, store.Wrong("Options.Create asks for a TTL of %v: %w", c.TTL, errTTL)
	case c.Mirror != nil || len(c.Sources) > 0:
		return nil, store.Wrong("Options.Create names a Mirror or Sources: %w", errFed)
	}
	if _, err := k.js.CreateKeyValue(ctx, *k.create); err != nil && !errors.Is(err, jetstream.ErrBucketExists) {
		return nil, fmt.Errorf("creating the bucket: %w", err)
	}
	return k.lookUp(ctx)
}

var (
	errTTL = errors.New("a bucket that forgets its keys forgets who leads and repeats election numbers: use one without a TTL")
	errFed = errors.New("what another bucket writes would overwrite the record unasked: use a bucket of its own")
)

// unfit says why a bucket cannot keep an election: any setting by which the
// server may drop or replace the record on its own, acknowledge what it has not
// stored, or take no second record.
func unfit(c *jetstream.StreamConfig) error {
	switch {
	case c.MaxAge > 0:
		return fmt.Errorf("the bucket has a TTL of %v: %w", c.MaxAge, errTTL)
	case c.Mirror != nil || len(c.Sources) > 0:
		return fmt.Errorf("the bucket is a mirror of another, or has sources: %w", errFed)
	case c.Retention != jetstream.LimitsPolicy:
		return fmt.Errorf("its stream has retention %v, by which the record goes when it was read: use a bucket made by nats kv add", c.Retention)
	case c.Discard == jetstream.DiscardOld && (c.MaxBytes > 0 || c.MaxMsgs > 0):
		return errors.New("its stream discards old messages when it is full, and the record may be among them: use a bucket made by nats kv add")
	case c.PersistMode == jetstream.AsyncPersistMode:
		return errors.New("its stream acknowledges writes before they are stored (persist mode async): use a bucket made by nats kv add")
	case c.NoAck:
		return errors.New("its stream acknowledges no writes (no ack): use a bucket made by nats kv add")
	case c.DiscardNewPerSubject:
		return errors.New("its stream refuses what would replace the record (discard new per subject): use a bucket made by nats kv add")
	case c.Sealed:
		return errors.New("its stream is sealed, and takes no writes: use a bucket made by nats kv add")
	case c.SubjectTransform != nil:
		return errors.New("its stream keeps what it is given under other subjects (subject transform): use a bucket made by nats kv add")
	case c.AllowMsgCounter:
		return errors.New("its stream takes nothing but numbers (message counter): use a bucket made by nats kv add")
	}
	return nil
}
