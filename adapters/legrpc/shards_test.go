package legrpc_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/legrpc"
	"github.com/c8e606e4/leaderelection/adapters/legrpc/internal/grpctest"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
	"github.com/c8e606e4/leaderelection/shard"
)

// owns waits until a member owns n shards, and returns their tokens.
func owns(m *shard.Member, n int) map[string]le.ElectionNumber {
	for len(m.Owned()) != n {
		runtime.Gosched()
	}
	tokens := map[string]le.ElectionNumber{}
	for _, o := range m.Owned() {
		tokens[o.Name()] = o.ElectionNumber()
	}
	return tokens
}

// serveShards starts a server on the loopback whose member joins the group.
func serveShards(t *testing.T, r *memgroup.Records, id string, worked *atomic.Int64, shards ...string) *shard.Member {
	t.Helper()
	listener := grpctest.Listen(t)
	set := shard.Numbered(4)
	if len(shards) > 0 {
		set = shard.Named(shards...)
	}
	m := must(shard.Config{
		Store: r.Store, MemberID: id, Shards: set, ClockPolicy: le.SharedClock, HostPort: []string{listener.Addr().String()},
		OnOwned: func(ctx context.Context, _ *shard.Owned) error { <-ctx.Done(); return nil },
	}.Start(context.Background()))(t)
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(legrpc.UnaryOwnerInterceptor(m, nil)),
		grpc.ChainStreamInterceptor(legrpc.StreamOwnerInterceptor(m, nil)))
	grpctest.Start(t, listener, server, &service{
		Say: func(ctx context.Context, in string) (string, error) {
			worked.Add(1)
			o := shard.OwnedFrom(ctx)
			return fmt.Sprintf("%s %s %d %s", id, o.Name(), o.ElectionNumber(), in), nil
		},
		Talk: func(s grpc.ServerStream) error {
			for {
				in := new(wrapperspb.StringValue)
				if err := s.RecvMsg(in); err != nil {
					return nil //nolint:nilerr // the caller has ended it
				}
				if err := s.SendMsg(wrapperspb.String(shard.OwnedFrom(s.Context()).Name() + " " + in.Value)); err != nil {
					return err
				}
			}
		},
	})
	t.Cleanup(func() { _ = m.Leave(context.Background()) })
	return m
}

// followShards returns a ShardConn of a group, closed with the test.
func followShards(t *testing.T, store func(string) (le.RaceDecider, error), wait time.Duration) *legrpc.ShardConn {
	t.Helper()
	conn := must(legrpc.FollowShards(shard.WatchConfig{Store: store, ClockPolicy: le.SharedClock}, &legrpc.ShardOptions{Wait: wait, Dial: []grpc.DialOption{grpctest.Plaintext}}))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Each call reaches its shard's owner, also when that has just left; nothing is worked on
// twice.
func TestShardConn(t *testing.T) {
	var r memgroup.Records
	var worked atomic.Int64
	conn := followShards(t, r.Store, time.Minute)
	a := serveShards(t, &r, "a", &worked)
	owns(a, 4)
	b := serveShards(t, &r, "b", &worked)
	gone := ""
	owned := map[string]map[string]le.ElectionNumber{"b": owns(b, 2), "a": owns(a, 2)}
	for id, tokens := range owned {
		for name, token := range tokens {
			got, err := say(legrpc.WithShard(t.Context(), name), conn, "hello")
			if want := fmt.Sprintf("%s %s %d hello", id, name, token); got != want || err != nil {
				t.Errorf("shard %s: %q, %v, want %q", name, got, err, want)
			}
			if o, _ := conn.Assignment().Owner(name); o.Member != id || o.Token != token {
				t.Errorf("shard %s is owned by %+v, it says", name, o)
			}
			if id == "b" {
				gone = name
			}
		}
	}
	stream := must(grpctest.Talk(legrpc.WithShard(t.Context(), "3"), conn))(t)
	for range 2 {
		out := new(wrapperspb.StringValue)
		if err := stream.SendMsg(wrapperspb.String("x")); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(out); err != nil || out.Value != "3 x" {
			t.Errorf("%q, %v", out.Value, err)
		}
	}
	_ = stream.CloseSend()
	for ctx, want := range map[context.Context]codes.Code{
		t.Context(): codes.InvalidArgument, legrpc.WithShard(t.Context(), "4"): codes.NotFound, legrpc.WithShard(t.Context(), "x"): codes.NotFound,
	} {
		if _, err := say(ctx, conn, "x"); status.Code(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	worked.Store(0)
	var wg sync.WaitGroup
	calls := 0
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	wg.Go(func() {
		defer begin()
		for got := ""; !strings.HasPrefix(got, "a "); calls++ {
			var err error
			if got, err = say(legrpc.WithShard(t.Context(), gone), conn, "x"); err != nil {
				t.Error(err)
				return
			}
			begin()
		}
	})
	<-begun // b has worked on the first
	if err := b.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if n := int(worked.Load()); n != calls {
		t.Errorf("%d calls were worked on %d times", calls, n)
	}
}

// A shard that is the group's no more is one that it never had, even to a call that waits for an
// owner. When it is back, it has an owner again.
func TestShardThatIsGone(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	var r memgroup.Records
	var worked atomic.Int64
	conn := followShards(t, r.Store, time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	at := func(name string, want codes.Code, o ...grpc.CallOption) {
		t.Helper()
		if _, err := say(legrpc.WithShard(ctx, name), conn, "x", o...); status.Code(err) != want {
			t.Errorf("shard %s: %v, want %v", name, err, want)
		}
	}
	for i, shards := range [][]string{{"blue", "red"}, {"blue"}, {"blue", "red"}} {
		want := []codes.Code{codes.OK, codes.NotFound}[i%2]
		var wg sync.WaitGroup
		if want == codes.NotFound { // nobody is there, and the shard is still known
			wg.Go(func() { at("red", want, grpc.WaitForReady(true)) })
			time.Sleep(10 * time.Millisecond)
		}
		m := serveShards(t, &r, fmt.Sprint("m", i), &worked, shards...)
		token := owns(m, len(shards))["blue"]
		for o, _ := conn.Assignment().Owner("blue"); o.Token != token && ctx.Err() == nil; o, _ = conn.Assignment().Owner("blue") {
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		at("blue", codes.OK)
		at("red", want)
		at("red", want, grpc.WaitForReady(true))
		if err := m.Leave(ctx); err != nil {
			t.Error(err)
		}
	}
}

// What is wrong is refused at once.
func TestFollowShardsRefuses(t *testing.T) {
	if _, err := legrpc.FollowShards(shard.WatchConfig{Store: new(memgroup.Records).Store}, nil); err == nil || !strings.Contains(err.Error(), "ShardOptions.Dial") {
		t.Errorf("without credentials: %v", err)
	}
	if _, err := legrpc.FollowShards(shard.WatchConfig{}, &legrpc.ShardOptions{Dial: []grpc.DialOption{grpctest.Plaintext}}); err == nil {
		t.Error("without a Store")
	}
}

// The interceptor serves what is owned, refuses the rest in the shard's name, and throws away
// an answer that comes too late.
func TestOwnerInterceptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r memgroup.Records
		var cut atomic.Bool
		lose := memory.LoseRequests()
		m := must(shard.Config{
			Store: r.With(func(op memory.Op) memory.Fault {
				if cut.Load() {
					return lose(op)
				}
				return memory.Fault{}
			}),
			MemberID: "a", Shards: shard.Numbered(2), ClockPolicy: le.SharedClock,
			OnOwned: func(ctx context.Context, _ *shard.Owned) error {
				<-ctx.Done()
				time.Sleep(5 * time.Second)
				return nil
			},
		}.Start(context.Background()))(t)
		intercept := legrpc.UnaryOwnerInterceptor(m, &legrpc.ServerOptions{Election: "g"})
		call := func(name string, takes time.Duration) error {
			ctx := t.Context()
			if name != "" {
				ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(legrpc.ShardKey, name))
			}
			_, err := intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/orders.Orders/Bill"}, func(context.Context, any) (any, error) {
				time.Sleep(takes)
				return nil, nil
			})
			return err
		}
		refused := func(err error, processed bool) {
			t.Helper()
			if no, is := legrpc.RefusalOf(err); !is || no.Election != "g/1" || no.Processed != processed || !strings.Contains(err.Error(), "own the shard") {
				t.Errorf("%v: %+v", err, no)
			}
		}
		refused(call("1", 0), false)
		if err := call("", 0); status.Code(err) != codes.InvalidArgument {
			t.Errorf("no shard: %v", err)
		}
		for len(m.Owned()) != 2 {
			time.Sleep(100 * time.Millisecond)
		}
		if err := call("1", 0); err != nil {
			t.Error(err)
		}
		if err := call("1/2", 0); err != nil {
			t.Error(err)
		}
		if _, is := legrpc.RefusalOf(call("1/3", 0)); !is { // another shard, of another numbering
			t.Error("a call by another number of shards was served")
		}
		if _, is := legrpc.RefusalOf(call("7", 0)); !is {
			t.Error("a shard that is not there was served")
		}
		cut.Store(true)
		refused(call("1", time.Minute), true)
		cut.Store(false)
		_ = m.Leave(context.Background())
	})
}

// A call waits for an owner until its ctx ends, without an option.
func TestShardCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := func(string) (le.RaceDecider, error) { return memory.NewDecider(), nil } // of a group without members
		for wait, want := range map[time.Duration]time.Duration{0: time.Minute, 5 * S: 5 * S} {
			conn := followShards(t, store, wait)
			ctx, cancel := context.WithTimeout(legrpc.WithShard(t.Context(), "0"), time.Minute)
			begin := time.Now()
			err := conn.Invoke(ctx, "/test.Test/Say", nil, nil)
			if took := time.Since(begin); err == nil || took != want {
				t.Errorf("Wait %v: %v after %v", wait, err, took)
			}
			cancel()
			_ = conn.Close()
		}
	})
}
