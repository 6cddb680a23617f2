package fenceredis_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis/fenceredis"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t *testing.T) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: stores.Redis(t).Addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestSet(t *testing.T) {
	c := client(t)
	for _, s := range []struct {
		token fence.Token
		want  error
	}{
		{fencetest.Orders(9), nil}, {fencetest.Orders(9), nil}, {fencetest.Orders(8), fence.ErrStale}, {fencetest.Orders(10), nil}, {fencetest.Orders(9), fence.ErrStale}, {fencetest.Orders(0), fence.ErrNoToken},
		{fencetest.Orders(1<<53 + 1), nil}, {fencetest.Orders(1 << 53), fence.ErrStale}, {fencetest.Orders(math.MaxInt64), nil}, {fencetest.Orders(math.MaxInt64 - 1), fence.ErrStale},
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
	for _, bad := range fencetest.NotTokens() {
		if err := fenceredis.Set(t.Context(), c, bad, "k", "x"); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("%v: %v", bad, err)
		}
		if err := fenceredis.NewGuard(c, bad.Election).Check(t.Context(), bad); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("a Guard, %v: %v", bad, err)
		}
		if n := c.Exists(t.Context(), fenceredis.Key("")).Val(); n != 0 || c.Get(t.Context(), "k").Val() != "users:1" {
			t.Errorf("%v has written", bad)
		}
	}
	var stale *fence.StaleError
	if err := fenceredis.Set(t.Context(), c, fencetest.Orders(7), "k", "x"); !errors.As(err, &stale) || stale.Greatest != math.MaxInt64 {
		t.Error(err)
	}
	if got, err := fenceredis.Do(t.Context(), c, fencetest.Orders(math.MaxInt64), []string{"n"}, "INCRBY", "n", 5); got != int64(5) || err != nil {
		t.Error(got, err)
	}
	if got, err := fenceredis.Do(t.Context(), c, fencetest.Orders(math.MaxInt64), []string{"none"}, "GET", "none"); got != nil || err != nil {
		t.Error(got, err)
	}
	if _, err := fenceredis.Do(t.Context(), c, fencetest.Orders(math.MaxInt64), []string{"n"}, "NOSUCH", "n"); err == nil || errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
}

// A command that is too long for a script is refused before anything is written, and the longest that
// is not works.
func TestLongCommands(t *testing.T) {
	c := client(t)
	push := func(token uint64, words int) error {
		command := []any{"RPUSH", "list"}
		for len(command) < words {
			command = append(command, len(command))
		}
		_, err := fenceredis.Do(t.Context(), c, fencetest.Orders(token), []string{"list"}, command...)
		return err
	}
	if err := push(1, 7900); err != nil {
		t.Error(err)
	}
	if err := push(2, 20000); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
	if fence, n := c.Get(t.Context(), fenceredis.Key("orders")).Val(), c.LLen(t.Context(), "list").Val(); fence != "1" || n != 7898 {
		t.Errorf("the fence is %s, and the list has %d elements", fence, n)
	}
}

// A fence that Redis evicts keeps nobody out: if it may have been evicted, nobody writes.
func TestEviction(t *testing.T) {
	c := client(t)
	set := func(key, value string) {
		t.Helper()
		if err := c.ConfigSet(t.Context(), key, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	write := func(token uint64) error { return fenceredis.Set(t.Context(), c, fencetest.Orders(token), "k", "v") }
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "maxmemory-policy") {
			t.Errorf("%s: %v", what, err)
		}
	}
	set("maxmemory-policy", "allkeys-lru")
	if err := write(1); err != nil {
		t.Errorf("without a limit nothing is evicted: %v", err)
	}
	set("maxmemory", "100mb")
	if err := write(2); err != nil {
		t.Errorf("the fence is there: %v", err)
	}
	c.Del(t.Context(), fenceredis.Key("orders")) // as an eviction does
	refused("a deposed leader, when the fence was evicted", write(1))
	refused("its leader", write(2))
	g := fenceredis.NewGuard(c, "orders")
	refused("Check", g.Check(t.Context(), fencetest.Orders(2)))
	refused("Peek", g.Peek(t.Context(), fencetest.Orders(2)))
	for _, policy := range []string{"noeviction", "volatile-lru"} {
		c.Del(t.Context(), fenceredis.Key("orders"))
		set("maxmemory-policy", policy)
		if err := write(3); err != nil {
			t.Errorf("%s: %v", policy, err)
		}
	}
	set("maxmemory-policy", "allkeys-lru")
	c.Del(t.Context(), fenceredis.Key("orders"))
	if err := c.Do(t.Context(), "ACL", "SETUSER", "default", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	if err := write(3); err == nil || !strings.Contains(err.Error(), "INFO") {
		t.Errorf("a user who may not ask: %v", err)
	}
}

func TestGuardAtOnce(t *testing.T) {
	c := client(t)
	var g fence.Checker = fenceredis.NewGuard(c, "orders")
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
}

// A fence that holds no number, or one that no token can have, lets nobody pass, is
// left as it is, and the error says so.
func TestDamagedFence(t *testing.T) {
	c := client(t)
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

// A Guard asks Confirm about tokens that would raise the fence, and keeps out those that it refuses.
func TestGuardConfirm(t *testing.T) {
	g := fenceredis.NewGuard(client(t), "orders")
	forged := errors.New("forged")
	var asked []leaderelection.ElectionNumber
	g.Confirm = func(_ context.Context, token fence.Token) error {
		if asked = append(asked, token.Number); token.Number > 7 {
			return forged
		}
		return nil
	}
	for _, c := range []struct {
		number uint64
		want   error
	}{{8, forged}, {5, nil}, {5, nil}, {7, nil}, {8, forged}, {7, nil}, {6, fence.ErrStale}} {
		if err := g.Check(t.Context(), fencetest.Orders(c.number)); !errors.Is(err, c.want) {
			t.Errorf("%d: %v, want %v", c.number, err, c.want)
		}
	}
	// A token that only reads is judged, and shuts nobody out.
	for token, want := range map[fence.Token]error{fencetest.Orders(8): nil, fencetest.Orders(1 << 62): nil, fencetest.Orders(6): fence.ErrStale, {Election: "users", Number: 1 << 62}: fence.ErrOtherElection} {
		if err := g.Peek(t.Context(), token); !errors.Is(err, want) {
			t.Errorf("Peek of %v: %v, want %v", token, err, want)
		}
	}
	if err := g.Check(t.Context(), fencetest.Orders(7)); err != nil {
		t.Errorf("shut out by a token that only read: %v", err)
	}
	if want := []leaderelection.ElectionNumber{8, 5, 7, 8}; !slices.Equal(asked, want) {
		t.Errorf("it was asked for %v, want %v", asked, want)
	}
}

// A Guard without a client admits nothing, and does not panic.
func TestZeroGuard(t *testing.T) {
	token := fencetest.Orders(1)
	for _, g := range []*fenceredis.Guard{{}, fenceredis.NewGuard(nil, "orders")} {
		for _, judge := range []func(context.Context, fence.Token) error{g.Check, g.Peek} {
			if err := judge(t.Context(), token); err == nil || !strings.Contains(err.Error(), "NewGuard") {
				t.Error(err)
			}
		}
	}
}

func ExampleSet() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	ctx := context.Background()
	set := func(number leaderelection.ElectionNumber, value string) {
		token := fence.Token{Election: "orders", Number: number} // Gate.Token returns it
		fmt.Println(fenceredis.Set(ctx, client, token, "{orders}:state", value))
	}
	set(1, "17 open") // the first leader
	set(2, "18 open") // the second
	set(1, "99 open") // the first again: it was stopped for longer than its term
	fmt.Println(client.Get(ctx, "{orders}:state").Val())
	// This prints:
	// <nil>
	// <nil>
	// fence: stale token orders:1: 2 has been seen. If this process leads, the election's record was set back: run leaderelect reset --after 2
	// 18 open
}

// Any command can be fenced; its keys are listed for the sake of clusters.
func ExampleDo() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	token := fence.Token{Election: "orders", Number: 7}
	open, err := fenceredis.Do(context.Background(), client, token, []string{"{orders}:open"}, "INCRBY", "{orders}:open", 5)
	fmt.Println(open, err)
	// This prints: 5 <nil>
}

// A script of one's own begins with Check: KEYS[1] is the fence, ARGV[1] the number.
func ExampleCheck() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	move := redis.NewScript(fenceredis.Check + `
redis.call('DECRBY', KEYS[2], ARGV[2])
redis.call('INCRBY', KEYS[3], ARGV[2])
return {1}`)
	keys := []string{fenceredis.Key("orders"), "{orders}:open", "{orders}:done"}
	for _, number := range []string{"2", "1"} {
		fmt.Println(move.Run(context.Background(), client, keys, number, 3).Slice())
	}
	// This prints:
	// [1] <nil>
	// [0 2] <nil>
}
