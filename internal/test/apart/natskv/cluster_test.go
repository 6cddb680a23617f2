package natskv_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The contract holds on three servers as on one.
func TestConformanceOfCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: a cluster, and what its clients wait for")
	}
	c := natstest.Cluster(t, 3)
	js := func(t testing.TB) jetstream.JetStream { return c.JetStream(t) }
	newElection := elections(js, bucket, &natskv.Options{Create: &jetstream.KeyValueConfig{Replicas: 3}})
	// A server that was the last to hear of the new stream answers "no responders" for a
	// moment, which a campaign tries again after and the conformance tests take for a fault.
	for _, s := range c {
		d := natskv.NewDecider(s.JetStream(t), bucket, "first", &natskv.Options{Create: &jetstream.KeyValueConfig{Replicas: 3}})
		for end := time.Now().Add(30 * time.Second); ; {
			_, err := d.ReadCurrent(t.Context())
			if err == nil {
				break
			}
			if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	decidertest.Run(t, newElection, &decidertest.Options{Rounds: 10})
}

// servers is a cluster whose servers can be ended.
type servers struct {
	js  func() jetstream.JetStream
	end func(name string)
}

// The server that leads the bucket's stream is ended while three candidates
// campaign. The others must first elect another for the stream, which takes them up
// to 9 s where it was killed; nobody can write meanwhile. A leadership that outlasts
// that goes on; else there is a new one when it is over.
func TestClusterLosesItsLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: a cluster, and what its clients wait for")
	}
	t.Run("stopped", func(t *testing.T) {
		c := natstest.Cluster(t, 3)
		clusterLosesItsLeader(t, servers{
			js:  func() jetstream.JetStream { return c.JetStream(t) },
			end: func(name string) { c.Named(t, name).Stop() },
		})
	})
	t.Run("killed", func(t *testing.T) {
		c := stores.NATSCluster(t, 3)
		js := func() jetstream.JetStream {
			return natstest.JetStream(t, strings.Join([]string{c[0].URL(), c[1].URL(), c[2].URL()}, ","))
		}
		natstest.Ready(t, js(), 3)
		clusterLosesItsLeader(t, servers{js: js, end: func(name string) {
			c[slices.IndexFunc(c, func(s *stores.NATSServer) bool { return s.Name == name })].Stop()
		}})
	})
}

func clusterLosesItsLeader(t *testing.T, s servers) {
	const raft = 9 * time.Second
	js := s.js()
	makeBucket(t, js, func(c *jetstream.KeyValueConfig) { c.Replicas = 3 })
	tr := newTrial(t, deciders(t, s.js)...)
	number, _ := tr.after(0, 10*time.Second)

	view := tr.view()
	end := view.Get()
	begin := time.Now()
	s.end(streamLeader(t, js))
	tr.wait("a leader with a term that is newer than the outage", raft+2*(term+2*skew), func() bool {
		v := tr.view()
		return v.ValueInFuture() && (v != view || v.Get().After(end.Add(term/2)))
	})
	t.Logf("leadership %d, then leadership %d; led again after %v", number, tr.view().ElectionNumber(), time.Since(begin).Round(time.Millisecond))

	// With one server of three left nobody can be elected, and nobody leads on.
	s.end(streamLeader(t, js))
	tr.over(tr.view(), term+skew)
	ctx, cancel := context.WithTimeout(t.Context(), 2*term)
	defer cancel()
	if _, err := natskv.NewDecider(js, bucket, key, nil).WriteEntry(ctx, feedtest.State(1000, nil)); err == nil || errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("a write without a majority: %v", err)
	}
	if v := tr.view(); v.ValueInFuture() {
		t.Errorf("leadership %d without a majority", v.ElectionNumber())
	}
}

// streamLeader is the name of the server that leads the bucket's stream.
func streamLeader(t *testing.T, js jetstream.JetStream) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for again := time.NewTicker(50 * time.Millisecond); ; <-again.C {
		s, err := js.Stream(ctx, "KV_"+bucket)
		if err == nil && s.CachedInfo().Cluster.Leader != "" {
			return s.CachedInfo().Cluster.Leader
		}
		if ctx.Err() != nil {
			t.Fatalf("the stream has no leader: %v", err)
		}
	}
}
