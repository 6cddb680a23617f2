package redis_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// Three candidates in processes of their own: one is killed, one stopped past its
// term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	addr := stores.Redis(t).Addr
	proctest.Run(t, proctest.Options{Address: "redis://" + addr + "?key=election", Upstream: addr})
}

// Whatever befalls the leader's connection for a while, it keeps its leadership.
func TestFaults(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	addr := stores.Redis(t).Addr
	proxy := stores.NewRelay(t, addr)
	proctest.Faults(t, redis.NewDecider(client(t, proxy.Addr), "k", nil), redis.NewDecider(client(t, addr), "k", nil), proxy)
}
