package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/proctest"
)

func TestMain(m *testing.M) {
	goredis.SetLogger(silent{})
	proctest.Main(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
		return open(ctx, address)
	})
	goleak.VerifyTestMain(m)
}

// silent keeps the client from logging what the tests provoke.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func open(ctx context.Context, address string) (*redis.Decider, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return redis.Open(ctx, u)
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *redis.Decider {
	t.Helper()
	d, err := open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// client returns a client as the documentation advises, closed at the end of the
// test.
func client(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var keys atomic.Uint64

func uniqueKey(t testing.TB) string { return fmt.Sprintf("%s:%d", t.Name(), keys.Add(1)) }

// elections returns what makes an election after the other at a server, each
// handle with a client of its own.
func elections(addr string, opts *redis.Options) func(t testing.TB) func() leaderelection.RaceDecider {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		key := uniqueKey(t)
		return func() leaderelection.RaceDecider { return redis.NewDecider(client(t, addr), key, opts) }
	}
}

// state is a record to write.
func state(number uint64, token leaderelection.LeaderToken) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{
		LeaderID: "a", HostPort: []string{"10.0.0.1:443"}, TermExpiry: time.Now().Add(time.Minute), TermLength: 15 * time.Second,
		ElectionNumber: leaderelection.ElectionNumber(number), Incarnation: "i", Token: token,
	}
}

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

// follow runs a feed until the test ends; the channel is closed when the feed has
// ended.
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

func next(t testing.TB, feed <-chan news) news {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	select {
	case n, ok := <-feed:
		if !ok {
			t.Fatal("the feed has ended")
		}
		return n
	case <-timeout.C:
		t.Fatal("no news for 30 s")
	}
	return news{}
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

// passing fails the test where err is nil, or says that no retry helps, or that a
// race was lost, or lacks one of these words.
func passing(t testing.TB, err error, words ...string) {
	t.Helper()
	if err == nil || errors.Is(err, leaderelection.ErrPermanent) || errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("%v is not an error that may pass", err)
	}
	says(t, err, words...)
}

func says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}
