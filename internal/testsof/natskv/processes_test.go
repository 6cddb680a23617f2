package natskv_test

import (
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/proctest"
	"github.com/c8e606e4/leaderelection/internal/testsof/natstest"
)

// Members of a group of package shard, in processes of their own, for as long as
// PROCTEST_GROUP_FOR says. See proctest.RunGroup.
func TestShards(t *testing.T) {
	addr := strings.TrimPrefix(natstest.Start(t).ClientURL(), "nats://")
	proctest.RunGroup(t, proctest.GroupOptions{Address: "nats://" + addr + "/shards/{name}?create=true", Upstream: addr})
}
