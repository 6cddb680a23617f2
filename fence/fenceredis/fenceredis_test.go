package fenceredis_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fenceredis"
	"github.com/c8e606e4/leaderelection/fence/internal/fencetest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// servers calls f with a client of a real server and of one in process.
func servers(t *testing.T, f func(t *testing.T, c *redis.Client)) {
	connect := func(t *testing.T, addr string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	t.Run("redis-server", func(t *testing.T) { f(t, connect(t, stores.Redis(t).Addr)) })
	t.Run("miniredis", func(t *testing.T) { f(t, connect(t, miniredis.RunT(t).Addr())) })
}

func TestSet(t *testing.T) {
	servers(t, func(t *testing.T, c *redis.Client) {
		for _, s := range []struct {
			token fence.Token
			want  error
		}{
			{fencetest.Orders(9), nil}, {fencetest.Orders(9), nil}, {fencetest.Orders(8), fence.ErrStale}, {fencetest.Orders(10), nil}, {fencetest.Orders(9), fence.ErrStale}, {fencetest.Orders(0), fence.ErrNoToken},
			{fencetest.Orders(1<<53 + 1), nil}, {fencetest.Orders(1 << 53), fence.ErrStale}, {fencetest.Orders(math.MaxUint64), nil}, {fencetest.Orders(math.MaxUint64 - 1), fence.ErrStale},
			{fence.Token{Election: "users", Number: 1}, nil},
		} {
			before := c.Get(t.Context(), "k").Val()
			err := fenceredis.Set(t.Context(), c, s.token, "k", s.token.String())
			if !errors.Is(err, s.want) {
				t.Errorf("%v: %v, want %v", s.token, err, s.want)
			}
			want := s.token.String()
			if s.want != nil {
				want = before
			}
			if got := c.Get(t.Context(), "k").Val(); got != want {
				t.Errorf("%v: the key is %q, want %q", s.token, got, want)
			}
		}
		var stale *fence.StaleError
		if err := fenceredis.Set(t.Context(), c, fencetest.Orders(7), "k", "x"); !errors.As(err, &stale) || stale.Greatest != math.MaxUint64 {
			t.Error(err)
		}
		if got, err := fenceredis.Do(t.Context(), c, fencetest.Orders(math.MaxUint64), []string{"n"}, "INCRBY", "n", 5); got != int64(5) || err != nil {
			t.Error(got, err)
		}
		if got, err := fenceredis.Do(t.Context(), c, fencetest.Orders(math.MaxUint64), []string{"none"}, "GET", "none"); got != nil || err != nil {
			t.Error(got, err)
		}
		if _, err := fenceredis.Do(t.Context(), c, fencetest.Orders(math.MaxUint64), []string{"n"}, "NOSUCH", "n"); err == nil || errors.Is(err, fence.ErrStale) {
			t.Error(err)
		}
	})
}

func TestGuardAtOnce(t *testing.T) {
	servers(t, func(t *testing.T, c *redis.Client) {
		var g fence.Checker = &fenceredis.Guard{Client: c, Election: "orders"}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := uint64(1); n <= 20; n++ {
					if err := g.Check(t.Context(), fencetest.Orders(n+uint64(i))); err != nil && !errors.Is(err, fence.ErrStale) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := g.Check(t.Context(), fencetest.Orders(27)); err != nil {
			t.Error(err)
		}
		if err := g.Check(t.Context(), fencetest.Orders(26)); !errors.Is(err, fence.ErrStale) {
			t.Error(err)
		}
		if err := g.Check(t.Context(), fence.Token{Election: "users", Number: 99}); !errors.Is(err, fence.ErrOtherElection) {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Check(ended, fencetest.Orders(28)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
