package redis_test

import (
	"fmt"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// Each setting by which a server forgets what it has confirmed is warned of, and a
// server without one is not.
func TestDurability(t *testing.T) {
	server := stores.Redis(t)
	for name, c := range map[string]struct {
		config []string
		want   []string
	}{
		"all well":       {[]string{"appendonly yes", "appendfsync always"}, nil},
		"no log":         {[]string{"appendonly no", `save "3600 1"`}, []string{"appendonly is no", "last snapshot"}},
		"nothing saved":  {[]string{"appendonly no", `save ""`}, []string{"appendonly is no", "forgets all"}},
		"synced later":   {[]string{"appendonly yes", "appendfsync everysec"}, []string{"appendfsync is everysec", "appendfsync always"}},
		"evicts the key": {[]string{"appendonly yes", "appendfsync always", "maxmemory 100mb", "maxmemory-policy allkeys-lru"}, []string{"maxmemory-policy is allkeys-lru", "noeviction"}},
		"evicts no key":  {[]string{"maxmemory-policy volatile-lru", "maxmemory 100mb", "appendonly yes", "appendfsync always"}, nil},
		"never evicts":   {[]string{"maxmemory 0", "maxmemory-policy allkeys-lru", "appendonly yes", "appendfsync always"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, set := range append([]string{"maxmemory 0", "maxmemory-policy noeviction"}, c.config...) {
				server.Ask(t, "CONFIG SET "+set)
			}
			feedtest.Examines(t, redis.NewDecider(client(t, server.Addr), "k", nil), c.want...)
		})
	}
}

// Replicas that nobody waits for are warned of, one of several as well, and so are more to
// be waited for than there are. To wait for all is right.
func TestDurabilityOfReplicas(t *testing.T) {
	server := stores.Redis(t, "--appendonly", "yes", "--appendfsync", "always", "--min-replicas-to-write", "1")
	stores.RedisReplica(t, server)
	stores.RedisReplica(t, server)
	warns := func(wait int, words ...string) {
		t.Helper()
		feedtest.Examines(t, redis.NewDecider(client(t, server.Addr), "k", &redis.Options{WaitReplicas: wait}), words...)
	}
	warns(0, "wait_replicas is 0", "has 2", "wait_replicas=2")
	warns(1, "wait_replicas is 1", "has 2", "given out twice", "wait_replicas=2")
	warns(2)
	warns(3, "wait_replicas is 3", "has 2", "nobody can lead")
	server.Ask(t, "CONFIG SET min-replicas-to-write 0")
	warns(2, "min-replicas-to-write is 0", "min-replicas-to-write 1")
}

// A managed service refuses CONFIG: that is said, and what can be known is examined.
func TestDurabilityOfManagedServer(t *testing.T) {
	server := stores.Redis(t)
	server.Ask(t, "ACL SETUSER candidate on >secret ~k &* +@all -config")
	w, err := opened(t, fmt.Sprintf("redis://candidate:secret@%s?key=k", server.Addr)).Durability(t.Context())
	feedtest.Warns(t, w, "appendonly is no")
	feedtest.Says(t, err, `"k"`, "refuses CONFIG GET", "appendfsync", "min-replicas-to-write")

	server.Ask(t, "ACL SETUSER candidate -info")
	w, err = opened(t, fmt.Sprintf("redis://candidate:secret@%s?key=k", server.Addr)).Durability(t.Context())
	feedtest.Warns(t, w)
	feedtest.Says(t, err, "refuses INFO", "refuses CONFIG")

	// What the documentation calls optional is enough.
	grant(t, server, append(documented(t), "+info", "+config|get"))
	feedtest.Examines(t, opened(t, fmt.Sprintf("redis://candidate:secret@%s?key=k", server.Addr)), "appendonly is no")
}

// In a Cluster the key's own master is asked.
func TestDurabilityOfCluster(t *testing.T) {
	nodes := stores.RedisCluster(t, 2)
	for i := range nodes {
		nodes[i].Ask(t, "CONFIG SET appendonly yes")
		nodes[i].Ask(t, "CONFIG SET appendfsync always")
	}
	nodes[1].Ask(t, "CONFIG SET appendfsync no")
	bad := 0
	for i := range 6 {
		w, err := opened(t, fmt.Sprintf("redis://%s?key=election:%d&cluster=true", nodes[0].Addr, i)).Durability(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(w) > 0 {
			feedtest.Warns(t, w, "appendfsync is no")
			bad++
		}
	}
	if bad == 0 || bad == 6 {
		t.Errorf("%d of 6 keys, on two masters, are warned of", bad)
	}
}
