package natskv_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores/natstest"
)

// The settings of a bucket that may lose a confirmed write are warned of.
func TestDurability(t *testing.T) {
	one := natstest.Start(t)
	cluster := natstest.Cluster(t, 3)
	for name, c := range map[string]struct {
		js     jetstream.JetStream
		config jetstream.KeyValueConfig
		words  []string
	}{
		"one":       {one.JetStream(t), jetstream.KeyValueConfig{Storage: jetstream.FileStorage}, []string{"one replica", "sync_interval"}},
		"two":       {cluster.JetStream(t), jetstream.KeyValueConfig{Replicas: 2, Storage: jetstream.FileStorage}, []string{"two replicas"}},
		"three":     {cluster.JetStream(t), jetstream.KeyValueConfig{Replicas: 3, Storage: jetstream.FileStorage}, nil},
		"in_memory": {cluster.JetStream(t), jetstream.KeyValueConfig{Replicas: 3, Storage: jetstream.MemoryStorage}, []string{"storage is memory"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := natskv.NewDecider(c.js, "durability-"+name, "e", &natskv.Options{Create: &c.config})
			if _, err := d.ReadCurrent(t.Context()); err != nil {
				t.Fatal(err)
			}
			warnings, err := d.Durability(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			feedtest.Warns(t, warnings, c.words...)
		})
	}
	d := natskv.NewDecider(one.JetStream(t), "none", "e", nil)
	if _, err := d.Durability(t.Context()); err == nil {
		t.Error("a bucket that is not there was examined")
	}
}
