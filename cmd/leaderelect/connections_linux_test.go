package main

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/shard"
)

// connections is how many connections a member has at most, as the README says, that coordinates a
// group: it follows all of the group's records.
var connections = map[string]int{"postgres": 11, "redis": 10, "mysql": 8, "etcd": 1, "nats": 1, "zookeeper": 1}

// All records of a group share what the process has of connections.
func TestConnectionsOfAGroup(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	for name, most := range connections {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, _ := everyStore[name](t)
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			between := stores.NewRelay(t, u.Host)
			u.Host = between.Addr
			own := member(t, u.String(), "a")
			member(t, u.String(), "b")
			member(t, u.String(), "c")
			if !eventually(func() bool { return len(own.Owned()) == 3 }) {
				t.Fatalf("it owns %d", len(own.Owned()))
			}
			time.Sleep(2 * time.Second)
			if n := between.Connections(); n > 3*most {
				t.Errorf("three members of one group have %d connections, want %d at most each", n, most)
			} else {
				t.Logf("%d connections of three members", n)
			}
		})
	}
}

// member takes part in a group as a process does.
func member(t *testing.T, raw, id string) *shard.Member {
	g, err := store.OpenGroup(t.Context(), raw, "coordinator", patience)
	if err != nil {
		t.Fatal(err)
	}
	m, err := shard.Config{
		Store: g.Store, MemberID: id, Shards: shard.Numbered(9), TermLength: 5 * time.Second, MaxClockSkew: 100 * time.Millisecond, PollInterval: 200 * time.Millisecond,
		OnOwned: func(ctx context.Context, _ *shard.Owned) error { <-ctx.Done(); return nil },
	}.Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.Leave(context.Background())
		g.Close()
	})
	return m
}
