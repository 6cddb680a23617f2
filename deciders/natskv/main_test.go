package natskv_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/proctest"
	"github.com/c8e606e4/leaderelection/internal/stores/natstest"
)

func TestMain(m *testing.M) {
	natstest.Main()
	proctest.Main(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
		u, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // it connects at once, or not
		defer cancel()
		return natskv.Open(ctx, u)
	})
	goleak.VerifyTestMain(m)
}

const (
	bucket = "elections"
	key    = "billing"
)

// makeBucket makes the bucket that most tests use.
func makeBucket(t testing.TB, js jetstream.JetStream, change ...func(*jetstream.KeyValueConfig)) jetstream.KeyValue {
	t.Helper()
	c := jetstream.KeyValueConfig{Bucket: bucket}
	for _, f := range change {
		f(&c)
	}
	kv, err := js.CreateKeyValue(t.Context(), c)
	if err != nil {
		t.Fatalf("making bucket: %v", err)
	}
	return kv
}

// state is a record to write.
func state(number leaderelection.ElectionNumber, token leaderelection.LeaderToken) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{LeaderID: "a", TermExpiry: time.Now().Add(time.Minute), TermLength: 15 * time.Second, ElectionNumber: number, Incarnation: "i", Token: token}
}

// write writes state number, and fails the test where that does not work.
func write(t testing.TB, d leaderelection.RaceDecider, number leaderelection.ElectionNumber, token leaderelection.LeaderToken) leaderelection.LeaderToken {
	t.Helper()
	next, err := d.WriteEntry(t.Context(), state(number, token))
	if err != nil {
		t.Fatalf("WriteEntry: %v", err)
	}
	return next
}

func read(t testing.TB, d leaderelection.RaceDecider) *leaderelection.RaceEntry {
	t.Helper()
	e, err := d.ReadCurrent(t.Context())
	if err != nil {
		t.Fatalf("ReadCurrent: %v", err)
	}
	return e
}

// loses fails the test where a write with token is not a lost race.
func loses(t testing.TB, d leaderelection.RaceDecider, token leaderelection.LeaderToken) {
	t.Helper()
	if _, err := d.WriteEntry(t.Context(), state(99, token)); !errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("WriteEntry = %v, want ErrLostRace", err)
	}
}

// news is what a feed yields.
type news struct {
	*leaderelection.RaceEntry
	err error
}

// follow runs a feed, and returns what it yields; the channel is closed when it
// has ended. It ends with the test at the latest.
func follow(t testing.TB, d *natskv.Decider) (<-chan news, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan news, 100)
	go func() {
		defer close(out)
		for e, err := range d.Changes(ctx) {
			out <- news{e, err}
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range out {
		}
	})
	return out, cancel
}

// next is the next thing that a feed yields.
func next(t testing.TB, feed <-chan news) news {
	t.Helper()
	select {
	case n, ok := <-feed:
		if !ok {
			t.Fatal("the feed has ended")
		}
		return n
	case <-time.After(30 * time.Second):
		t.Fatal("no news for 30 s")
		return news{}
	}
}
