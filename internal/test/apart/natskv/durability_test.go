package natskv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// made has d make its bucket, and returns when that answers: a replicated one takes a
// moment.
func made(t *testing.T, d *natskv.Decider) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for again := time.NewTicker(20 * time.Millisecond); ; <-again.C {
		_, err := d.ReadCurrent(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil || errors.Is(err, leaderelection.ErrPermanent) {
			t.Fatal(err)
		}
	}
}

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
			made(t, d)
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
