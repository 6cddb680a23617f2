package hinted_test

import (
	"context"
	"net/http"
	"slices"
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
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return &onGCS{url: stores.FakeGCS(t, "elections"), nats: stores.NATS(t)}
}

func (s *onGCS) decider(t testing.TB, poll time.Duration) *hinted.Decider {
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
	const subject = "elections.web"
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
	return hinted.NewDecider(gcs.NewDecider(client, "elections", "web", nil), listen, &hinted.Options{PollInterval: poll, Announce: announce})
}

// On a store that cannot push, from the release to OnElected in another candidate: the
// median of 20 is bounded by what the store itself takes, not by the poll.
func TestHandoverOnGCS(t *testing.T) {
	s := newOnGCS(t)
	elected, up := make(chan time.Time, 1), make(chan struct{}, 100)
	start := func() (leave func()) {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := leaderelection.Config{
			Decider: s.decider(t, 0), LeaderID: "one of many", TermLength: time.Minute,
			Trace: &leaderelection.Trace{Feed: func(f leaderelection.FeedEvent) {
				if f.Err != nil {
					t.Error(f.Err)
				}
				up <- struct{}{}
			}},
			OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
				elected <- time.Now()
				<-ctx.Done()
			},
		}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			cancel()
			_ = c.Wait()
		}
	}
	leave := start()
	<-up
	<-elected
	var took []time.Duration
	for range 20 {
		stay := start()
		<-up // it has read: else it would find the record vacant by itself
		left := time.Now()
		leave()
		took = append(took, (<-elected).Sub(left))
		leave = stay
	}
	leave()
	slices.Sort(took)
	t.Logf("release to OnElected in %v (median of %d), %v at most; the poll interval is 30s", took[len(took)/2], len(took), took[len(took)-1])
	if median := took[len(took)/2]; median > 100*time.Millisecond {
		t.Errorf("hand-over takes %v", median)
	}
}

// The server of hints is stopped while something is written: news is late by the poll at
// most.
func TestNewsWithoutHints(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it breaks the store and waits")
	}
	const poll = 500 * time.Millisecond
	s := newOnGCS(t)
	feedtest.News(t, s.decider(t, poll), s.decider(t, poll), feedtest.Trouble{Break: s.nats.Stop, Heal: func() { s.nats.Start(t) }})
}
