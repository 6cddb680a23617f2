package natskv_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The tests that all stores share, on a server in a process of its own.

func onServer(s *stores.NATSServer) feedtest.NewElection {
	js := func(t testing.TB) jetstream.JetStream { return natstest.JetStream(t, s.URL()) }
	return elections(js, bucket, &natskv.Options{Create: &jetstream.KeyValueConfig{}})
}

func TestProcesses(t *testing.T) {
	s := stores.NATS(t)
	proctest.Run(t, proctest.Options{Address: s.URL() + "/elections/one?create=true", Upstream: s.Addr})
}

func TestOutage(t *testing.T) {
	s := stores.NATS(t)
	feedtest.Outage(t, onServer(s), feedtest.Trouble{Break: s.Stop, Heal: func() { s.Start(t) }})
}

func TestHandover(t *testing.T) { feedtest.Handover(t, onServer(stores.NATS(t))) }

func TestNews(t *testing.T) {
	s := stores.NATS(t)
	h := onServer(s)(t)
	feedtest.News(t, h(), h(), feedtest.Trouble{Break: s.Stop, Heal: func() { s.Start(t) }})
}
