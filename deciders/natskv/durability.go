package natskv

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

var _ durability.Examiner = (*Decider)(nil)

// Durability implements durability.Examiner: it asks the bucket's stream where it keeps
// its messages, and on how many servers. How soon a server syncs its disk (sync_interval)
// it tells to no client.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	info, err := within.Do(ctx, d.calls, func() (*jetstream.StreamInfo, error) {
		b, err := d.lookUp(ctx)
		if err != nil {
			return nil, err
		}
		return b.stream.Info(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("leaderelection/natskv: examining the stream of %s: %w", d.place(), err)
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
	if info.Cluster != nil {
		for _, peer := range info.Cluster.Replicas {
			if peer.Offline || !peer.Current {
				warn("see to that server", "the replica on %q is offline or behind (offline %v, %d messages behind)", peer.Name, peer.Offline, peer.Lag)
			}
		}
	}
	return found
}
