package natskv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// The contract holds on three servers as on one.
func TestConformanceOfCluster(t *testing.T) {
	c := stores.NATSCluster(t, 3)
	js := func(t testing.TB) jetstream.JetStream { return c.JetStream(t) }
	newElection := elections(js, bucket, &natskv.Options{Create: &jetstream.KeyValueConfig{Replicas: 3}})
	decidertest.Options{Rounds: 10, CreateRounds: 2}.Run(t, newElection)
}

// streamLeader is the server that leads the bucket's stream.
func streamLeader(t *testing.T, c stores.NATSServers) *stores.NATSServer {
	t.Helper()
	s, err := c.JetStream(t).Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	return c.Named(t, s.CachedInfo().Cluster.Leader)
}

// The server that leads the bucket's stream is stopped while three candidates
// contest. The others must first elect another for the stream, which takes them
// up to 9 s; nobody can write meanwhile. A reign that outlasts that goes on;
// else there is a new one when it is over.
func TestClusterLosesItsLeader(t *testing.T) {
	const raft = 9 * time.Second
	c := stores.NATSCluster(t, 3)
	makeBucket(t, c.JetStream(t), func(c *jetstream.KeyValueConfig) { c.Replicas = 3 })
	tr := newTrial(t, deciders(t, func() jetstream.JetStream { return c.JetStream(t) })...)
	number, _ := tr.after(0, 10*time.Second)

	view := tr.view()
	end := view.Get()
	begin := time.Now()
	streamLeader(t, c).Stop()
	tr.wait("a leader with a term that is newer than the outage", raft+2*(term+2*skew), func() bool {
		v := tr.view()
		return v.ValueInFuture() && (v != view || v.Get().After(end.Add(term/2)))
	})
	t.Logf("reign %d, then reign %d; led again after %v", number, tr.view().ElectionNumber(), time.Since(begin).Round(time.Millisecond))

	// With one server of three left nobody can be elected, and nobody leads on.
	streamLeader(t, c).Stop()
	tr.over(tr.view(), term)
	d := natskv.NewDecider(lastOf(t, c).JetStream(t), bucket, key, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*term)
	defer cancel()
	if _, err := d.WriteEntry(ctx, state(1000, nil)); err == nil || errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("a write without a majority: %v", err)
	}
	if n := tr.view().ElectionNumber(); tr.view().ValueInFuture() {
		t.Errorf("reign %d without a majority", n)
	}
}

// lastOf is the server that still runs.
func lastOf(t *testing.T, c stores.NATSServers) *stores.NATSServer {
	t.Helper()
	for _, s := range c {
		if s.Running() {
			return s
		}
	}
	t.Fatal("no server runs")
	return nil
}
