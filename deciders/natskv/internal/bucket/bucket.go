// Package bucket checks whether a key-value bucket of NATS can keep an election, and what it may
// lose.
package bucket

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/durability"
)

var (
	validBucket = regexp.MustCompile(`^[-_a-zA-Z0-9]+$`)
	validKey    = regexp.MustCompile(`^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$`)
)

// Check says what NATS would not allow of the names of a bucket and a key.
func Check(bucket, key string) error {
	switch {
	case !validBucket.MatchString(bucket):
		return fmt.Errorf("%w %q: it may have letters, digits, '-' and '_' only", jetstream.ErrInvalidBucketName, bucket)
	case !validKey.MatchString(key):
		return fmt.Errorf("%w %q: it may have letters, digits and any of -/_=. only, and no '.' at either end or next to another", jetstream.ErrInvalidKey, key)
	}
	return nil
}

// Wanted says why a bucket that is to be made could not keep an election.
func Wanted(c *jetstream.KeyValueConfig) error {
	switch {
	case c.TTL > 0:
		return fmt.Errorf("Options.Create asks for a TTL of %v: %w", c.TTL, errTTL)
	case c.Mirror != nil || len(c.Sources) > 0:
		return fmt.Errorf("Options.Create names a Mirror or Sources: %w", errFed)
	}
	return nil
}

var (
	errTTL = errors.New("a bucket that forgets its keys forgets who leads and repeats election numbers: use one without a TTL")
	errFed = errors.New("what another bucket writes would overwrite the record unasked: use a bucket of its own")
)

// Unfit says why a bucket cannot keep an election: any setting by which the server may drop or
// replace the record by itself, acknowledge what it has not stored, or refuse a second record.
func Unfit(c *jetstream.StreamConfig) error {
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

// Examine says which of the package documentation's warnings apply.
func Examine(info *jetstream.StreamInfo) []durability.Warning {
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
	for _, peer := range Behind(info) {
		warn("see to that server", "the replica on %q is offline or behind (offline %v, %d messages behind)", peer.Name, peer.Offline, peer.Lag)
	}
	return found
}

// Behind are the replicas that do not have what the others have.
func Behind(info *jetstream.StreamInfo) (peers []*jetstream.PeerInfo) {
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
