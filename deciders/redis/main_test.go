package redis_test

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	goredis.SetLogger(silent{})
	proctest.Main(redis.Open)
	decidertest.Main(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
		return open(ctx, address)
	})
	goleak.VerifyTestMain(m)
}

// silent keeps the client from logging what the tests provoke.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// client returns a client as the documentation advises, closed at the end of the
// test.
func client(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// elections returns what makes an election after the other at a server, each
// handle with a client of its own.
func elections(addr string, opts *redis.Options) func(t testing.TB) func() leaderelection.RaceDecider {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		key := feedtest.Unique()
		return func() leaderelection.RaceDecider { return redis.NewDecider(client(t, addr), key, opts) }
	}
}

func open(ctx context.Context, address string) (*redis.Decider, error) {
	return feedtest.Open(ctx, redis.Open, address)
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *redis.Decider {
	t.Helper()
	return feedtest.Opened(t, redis.Open, address)
}
