package etcd_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/proctest"
	"github.com/c8e606e4/leaderelection/internal/stores"
	"github.com/c8e606e4/leaderelection/internal/testsof/grouptest"
)

func TestMain(m *testing.M) { grouptest.Main(m, etcd.Open) }

// Members of a group of package shard, in processes of their own, for as long as
// PROCTEST_GROUP_FOR says. See proctest.RunGroup.
func TestShards(t *testing.T) {
	server := stores.Etcd(t)
	proctest.RunGroup(t, proctest.GroupOptions{Address: "etcd://" + server.Endpoint + "/shards/{name}", Upstream: server.Endpoint})
}
