package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
		u, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		return etcd.Open(ctx, u)
	})
	goleak.VerifyTestMain(m)
}

// client returns a client of its own, closed at the end of the test.
func client(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	return clientOf(t, clientv3.Config{Endpoints: endpoints})
}

func clientOf(t testing.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.Logger = zap.NewNop()
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var keys atomic.Uint64

func uniqueKey(t testing.TB) string { return fmt.Sprintf("elections/%s/%d", t.Name(), keys.Add(1)) }

// elections returns what makes an election after the other, each on a key of the
// test's own, each handle with a client of its own.
func elections(endpoints ...string) func(t testing.TB) func() leaderelection.RaceDecider {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		key := uniqueKey(t)
		return func() leaderelection.RaceDecider {
			return etcd.NewDecider(client(t, endpoints...), key, nil)
		}
	}
}

// opened returns the election at a URL, closed at the end of the test.
func opened(t testing.TB, address string) *etcd.Decider {
	t.Helper()
	d, err := open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func open(ctx context.Context, address string) (*etcd.Decider, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return etcd.Open(ctx, u)
}

// state is a record to write.
func state(number uint64, token leaderelection.LeaderToken) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{
		LeaderID: "a", TermExpiry: time.Now().Add(time.Minute), TermLength: 15 * time.Second,
		ElectionNumber: leaderelection.ElectionNumber(number), Incarnation: "i", Token: token,
	}
}

// write writes state number, and fails the test where that does not work.
func write(t testing.TB, d leaderelection.RaceDecider, number uint64, token leaderelection.LeaderToken) leaderelection.LeaderToken {
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

// news is what a feed yields.
type news struct {
	*leaderelection.RaceEntry
	err error
}

// follow runs a feed, and returns what it yields; the channel is closed when it
// has ended. It ends with the test at the latest.
func follow(t testing.TB, d leaderelection.ChangeFeed) <-chan news {
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
	return out
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

// permanent fails the test where err does not say that no retry helps, or lacks
// one of these words.
func permanent(t testing.TB, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("%v does not wrap ErrPermanent", err)
	}
	says(t, err, words...)
}

// says fails the test where err lacks one of these words.
func says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}
