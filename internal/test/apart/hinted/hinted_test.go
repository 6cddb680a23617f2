package hinted_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
	"google.golang.org/api/option"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/deciders/hinted"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onGCS is an election in an object on Google Cloud Storage, whose candidates tell each
// other on a NATS subject, each over clients of its own.
type onGCS struct {
	url  string
	nats *stores.NATSServer
}

func newOnGCS(t *testing.T) *onGCS {
	stores.Nightly(t, "it measures, and breaks, the server of hints")
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return &onGCS{url: stores.FakeGCS(t, "elections"), nats: stores.NATS(t)}
}

// elections makes an election after the other.
func (s *onGCS) elections(poll time.Duration) feedtest.NewElection {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		name := feedtest.Unique()
		return func() leaderelection.RaceDecider { return s.decider(t, name, poll) }
	}
}

func (s *onGCS) decider(t testing.TB, name string, poll time.Duration) *hinted.Decider {
	client, err := storage.NewClient(context.WithoutCancel(t.Context()), option.WithEndpoint(s.url+"/storage/v1/"),
		option.WithoutAuthentication(), storage.WithJSONReads())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	nc, err := nats.Connect(s.nats.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	subject := "elections." + name
	announce := func(ctx context.Context) {
		if err := nc.Publish(subject, nil); err == nil {
			_ = nc.FlushWithContext(ctx) // so that it is sent before a process ends
		}
	}
	listen := func(ctx context.Context, changed func()) error {
		sub, err := nc.Subscribe(subject, func(*nats.Msg) { changed() })
		if err != nil {
			return err
		}
		defer func() { _ = sub.Unsubscribe() }()
		if err := nc.FlushTimeout(5 * time.Second); err != nil {
			return err
		}
		changed() // it listens
		<-ctx.Done()
		return nil
	}
	return hinted.NewDecider(gcs.NewDecider(client, "elections", name, nil), listen, &hinted.Options{PollInterval: poll, Announce: announce})
}

// On a store that cannot push, a hand-over is bounded by what the store and the hint take, not by the poll.
func TestHandoverOnGCS(t *testing.T) { feedtest.Handover(t, newOnGCS(t).elections(0)) }

// The server of hints is stopped while something is written: news is late by the poll at
// most.
func TestNewsWithoutHints(t *testing.T) {
	s := newOnGCS(t)
	handle := s.elections(500 * time.Millisecond)(t)
	feedtest.News(t, handle(), handle(), feedtest.Trouble{Break: s.nats.Stop, Heal: func() { s.nats.Start(t) }})
}
