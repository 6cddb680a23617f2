package stores_test

import (
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

func TestRedis(t *testing.T) {
	r := stores.Redis(t, "--appendonly", "yes")
	r.Ask(t, "SET k v")
	r.Stop()
	r.Start(t)
	if v := r.Ask(t, "GET k"); strings.TrimSpace(v) != "v" {
		t.Errorf("after a restart: %q", v)
	}
	replica := stores.RedisReplica(t, r)
	stores.RedisSentinel(t, r, 1)
	if v := replica.Ask(t, "GET k"); strings.TrimSpace(v) != "v" {
		t.Errorf("at the replica: %q", v)
	}
	stores.RedisCluster(t, 3)
}
