package postgres_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/proctest"
	"github.com/c8e606e4/leaderelection/internal/stores"
	"github.com/c8e606e4/leaderelection/internal/testsof/grouptest"
)

func TestMain(m *testing.M) { grouptest.Main(m, postgres.Open) }

// Members of a group of package shard, in processes of their own, for as long as
// PROCTEST_GROUP_FOR says. See proctest.RunGroup.
func TestShards(t *testing.T) {
	// Each record's handle of each process has a connection for its feed, and one for its calls.
	addr := stores.Postgres(t, "max_connections=400").Addr
	proctest.RunGroup(t, proctest.GroupOptions{Address: "postgres://postgres@" + addr + "/postgres?sslmode=disable&election={name}&create=true", Upstream: addr})
}
