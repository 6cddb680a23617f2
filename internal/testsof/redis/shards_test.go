package redis_test

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/proctest"
	"github.com/c8e606e4/leaderelection/internal/stores"
	"github.com/c8e606e4/leaderelection/internal/testsof/grouptest"
)

func TestMain(m *testing.M) {
	goredis.SetLogger(silent{})
	grouptest.Main(m, redis.Open)
}

// silent keeps the client from logging what the tests provoke.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Members of a group of package shard, in processes of their own, for as long as
// PROCTEST_GROUP_FOR says. See proctest.RunGroup.
func TestShards(t *testing.T) {
	addr := stores.Redis(t).Addr
	proctest.RunGroup(t, proctest.GroupOptions{Address: "redis://" + addr + "?key=shards:{name}", Upstream: addr})
}
