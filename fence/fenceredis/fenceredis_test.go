package fenceredis_test

import (
	"context"
	"errors"
	"math"
	"strings"
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

// A fence that holds no number, or one that no token can have, lets nobody pass, is
// left as it is, and the error says so.
func TestDamagedFence(t *testing.T) {
	servers(t, func(t *testing.T, c *redis.Client) {
		for _, damage := range []string{"", "abc", "007", "-1", "1e3", "9 ", "12\n", "99999999999999999999999"} {
			if err := c.Set(t.Context(), fenceredis.Key("orders"), damage, 0).Err(); err != nil {
				t.Fatal(err)
			}
			err := fenceredis.Set(t.Context(), c, fencetest.Orders(1000), "k", "x")
			if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), fenceredis.Key("orders")) {
				t.Errorf("%q: %v", damage, err)
			}
			if now := c.Get(t.Context(), fenceredis.Key("orders")).Val(); now != damage {
				t.Errorf("%q has become %q", damage, now)
			}
			if n := c.Exists(t.Context(), "k").Val(); n != 0 {
				t.Errorf("%q: the write has passed", damage)
			}
		}
	})
}

// says is a client whose server answers every script so.
type says struct {
	redis.Scripter
	answer any
}

func (s says) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	c := redis.NewCmd(ctx)
	c.SetVal(s.answer)
	return c
}

// Only this script's answer to this token is a success, and only a greater number a
// refusal.
func TestAnswersOfSomethingElse(t *testing.T) {
	for _, answer := range []any{
		nil, "OK", int64(1), []any{}, []any{int64(1)}, []any{int64(1), nil}, []any{int64(1), "OK"}, []any{int64(1), "8"}, []any{int64(1), "10", "OK"},
		[]any{"1", "9"}, []any{int64(0)}, []any{int64(0), "9"}, []any{int64(0), "8"}, []any{int64(0), "x"}, []any{int64(0), nil}, []any{int64(2), "10"},
		[]any{int64(0), "10", "OK"}, []any{int64(0), "99999999999999999999"},
	} {
		got, err := fenceredis.Do(t.Context(), says{answer: answer}, fencetest.Orders(9), nil, "GET", "k")
		if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), fenceredis.Key("orders")) {
			t.Errorf("%v: %v, %v", answer, got, err)
		}
	}
	if got, err := fenceredis.Do(t.Context(), says{answer: []any{int64(1), "9", "v"}}, fencetest.Orders(9), nil, "GET", "k"); got != "v" || err != nil {
		t.Error(got, err)
	}
	if _, err := fenceredis.Do(t.Context(), says{answer: []any{int64(0), "10"}}, fencetest.Orders(9), nil, "GET", "k"); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
}

// A token that only reads is judged, and shuts nobody out.
func TestPeekRaisesNothing(t *testing.T) {
	servers(t, func(t *testing.T, c *redis.Client) {
		g := &fenceredis.Guard{Client: c, Election: "orders"}
		if err := g.Check(t.Context(), fencetest.Orders(7)); err != nil {
			t.Fatal(err)
		}
		if err := g.Peek(t.Context(), fencetest.Orders(1<<62)); err != nil {
			t.Error(err)
		}
		if err := g.Peek(t.Context(), fencetest.Orders(6)); !errors.Is(err, fence.ErrStale) {
			t.Error(err)
		}
		if err := g.Check(t.Context(), fencetest.Orders(7)); err != nil {
			t.Errorf("shut out by a token that only read: %v", err)
		}
		other := fence.Token{Election: "users", Number: 1 << 62}
		if err := g.Peek(t.Context(), other); !errors.Is(err, fence.ErrOtherElection) {
			t.Errorf("another election's token: %v", err)
		}
	})
}

// In a cluster, a fence is in the slot of the election's name alone, as keys can be that are tagged
// with it.
func TestKeyHasAHashTag(t *testing.T) {
	if key := fenceredis.Key("orders"); key != "{orders}:fence" {
		t.Errorf("%q", key)
	}
}
