package natskv

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner: it asks the bucket's stream where it keeps
// its messages, and on how many servers. How soon a server syncs its disk (sync_interval)
// it tells to no client.
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

// examine says what of the package documentation's warnings applies.
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

// settle is how long a replica may take to have what the others have.
const settle = time.Second

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
