package natskv

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
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
	if err := checkNames(k.bucket, k.key); err != nil {
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
	if err := unfit(&stream.CachedInfo().Config); err != nil {
		return nil, store.Wrong("%w", err)
	}
	return &binding{kv: kv, stream: stream}, nil
}

// makeBucket creates the bucket; if another is quicker, theirs will do.
func (k *backend) makeBucket(ctx context.Context) (*binding, error) {
	if err := forgetful("Options.Create asks for", k.create.TTL, k.create.Mirror != nil || len(k.create.Sources) > 0); err != nil {
		return nil, store.Wrong("%w", err)
	}
	if _, err := k.js.CreateKeyValue(ctx, *k.create); err != nil && !errors.Is(err, jetstream.ErrBucketExists) {
		return nil, fmt.Errorf("creating the bucket: %w", err)
	}
	return k.lookUp(ctx)
}

var (
	validBucket = regexp.MustCompile(`^[-_a-zA-Z0-9]+$`)
	validKey    = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$`)
)

// checkNames says what NATS would not allow of the names of a bucket and a key.
func checkNames(bucket, key string) error {
	switch {
	case !validBucket.MatchString(bucket):
		return fmt.Errorf("%w %q: it may have letters, digits, '-' and '_' only", jetstream.ErrInvalidBucketName, bucket)
	case !validKey.MatchString(key):
		return fmt.Errorf("%w %q: it may have letters, digits and any of -/_=. only, and no '.' at either end or next to another", jetstream.ErrInvalidKey, key)
	}
	return nil
}

// forgetful says why a bucket that has a TTL, or is fed by others, could not keep an election.
func forgetful(what string, ttl time.Duration, fed bool) error {
	switch {
	case ttl > 0:
		return fmt.Errorf("%s a TTL of %v: a bucket that forgets its keys forgets who leads and repeats election numbers: use one without a TTL", what, ttl)
	case fed:
		return fmt.Errorf("%s a mirror, or sources: what another bucket writes would overwrite the record unasked: use a bucket of its own", what)
	}
	return nil
}

// unfit says why a bucket cannot keep an election: any setting by which the server may drop or
// replace the record by itself, acknowledge what it has not stored, or refuse a second record.
func unfit(c *jetstream.StreamConfig) error {
	if err := forgetful("the bucket has", c.MaxAge, c.Mirror != nil || len(c.Sources) > 0); err != nil {
		return err
	}
	for _, unfit := range []struct {
		is  bool
		why string
	}{
		{c.Retention != jetstream.LimitsPolicy, fmt.Sprintf("has retention %v, by which the record goes when it was read", c.Retention)},
		{c.Discard == jetstream.DiscardOld && (c.MaxBytes > 0 || c.MaxMsgs > 0), "discards old messages when it is full, and the record may be among them"},
		{c.PersistMode == jetstream.AsyncPersistMode, "acknowledges writes before they are stored (persist mode async)"},
		{c.NoAck, "acknowledges no writes (no ack)"},
		{c.DiscardNewPerSubject, "refuses what would replace the record (discard new per subject)"},
		{c.Sealed, "is sealed, and takes no writes"},
		{c.SubjectTransform != nil, "keeps what it is given under other subjects (subject transform)"},
		{c.AllowMsgCounter, "takes nothing but numbers (message counter)"},
	} {
		if unfit.is {
			return fmt.Errorf("its stream %s: use a bucket made by nats kv add", unfit.why)
		}
	}
	return nil
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
		if err == nil && behind(info) != nil {
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
	return examine(info), nil
}

// settle is how long a replica may take to have what the others have.
const settle = time.Second

// examine says which of the package documentation's warnings apply.
func examine(info *jetstream.StreamInfo) []durability.Warning {
	var found []durability.Warning
	warn := func(advice, format string, args ...any) {
		found = append(found, durability.Warning{Detail: fmt.Sprintf(format, args...), Advice: advice})
	}
	if info.Config.Storage == jetstream.MemoryStorage {
		warn("keep the bucket in files (nats kv add --storage file)",
			"the bucket's storage is memory, so the election is forgotten when its servers restart together")
	}
	switch info.Config.Replicas {
	case 0, 1:
		warn("use three replicas, or set sync_interval: always in the server's jetstream block",
			"the bucket has one replica, and a server syncs its disk every two minutes unless told otherwise: a power failure forgets confirmed writes")
	case 2:
		warn("use three replicas", "the bucket has two replicas, so nobody can lead while one of them is away")
	}
	for _, peer := range behind(info) {
		warn("see to that server", "the replica on %q is offline or behind (offline %v, %d messages behind)", peer.Name, peer.Offline, peer.Lag)
	}
	return found
}

// behind are the replicas that do not have what the others have.
func behind(info *jetstream.StreamInfo) (peers []*jetstream.PeerInfo) {
	if info.Cluster == nil {
		return nil
	}
	for _, p := range info.Cluster.Replicas {
		if p.Offline || !p.Current {
			peers = append(peers, p)
		}
	}
	return peers
}
