package redis_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// A write that no replica has does not count: not when it is written, not when
// its writer reads it back, loses to it, or hears of it; until a replica has it.
func TestWaitReplicas(t *testing.T) {
	server := stores.Redis(t)
	replica := stores.RedisReplica(t, server)
	c := client(t, server.Addr)
	opts := &redis.Options{WaitReplicas: 1, WaitTimeout: 200 * time.Millisecond}
	d := redis.NewDecider(c, "k", opts)
	token := feedtest.Write(t, d, 1, nil)

	replica.Stop()
	feed := feedtest.Follow(t, d)
	if n := feedtest.Next(t, feed); n.Err != nil || n.ElectionNumber != 1 { // that one it had
		t.Fatalf("%+v", n)
	}
	feedtest.Passing(t, feedtest.WriteError(t, d, 2, token), `"k"`, "0 of 1 replicas")
	feedtest.Passing(t, feedtest.Next(t, feed).Err, "0 of 1 replicas")
	feedtest.Passing(t, feedtest.ReadError(t, d), "0 of 1 replicas")
	_, err := d.WriteEntry(t.Context(), feedtest.State(3, token))
	var lost *leaderelection.LostRaceError
	if !errors.As(err, &lost) || lost.Current != nil {
		t.Errorf("a write that the first of two had beaten: %v, with %+v", err, lost.Current)
	}
	// For others it is a record like any other: it is the leader that must not
	// trust in it.
	other := redis.NewDecider(c, "k", opts)
	feedtest.Reads(t, other, 2)

	replica.Start(t)
	e := readWhenItWorks(t, d)
	if e.ElectionNumber != 2 {
		t.Errorf("%+v", e)
	}
	before := requests(t, server)
	feedtest.Read(t, d)
	if n := requests(t, server) - before; n != 1 {
		t.Errorf("what is known to be on the replica was asked for by %d requests", n)
	}
	feedtest.Write(t, d, 3, e.Token)
}

// What an operator writes over a leader's record keeps the end of its term, by which
// the leader knows its write again: it confirms nothing either before a replica has it.
func TestWaitReplicasAfterTransfer(t *testing.T) {
	server := stores.Redis(t)
	replica := stores.RedisReplica(t, server)
	c := client(t, server.Addr)
	leader := redis.NewDecider(c, "k", &redis.Options{WaitReplicas: 1, WaitTimeout: 200 * time.Millisecond})
	claim := feedtest.State(1, nil)
	claim.Extension = 0
	token, err := leader.WriteEntry(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	replica.Stop()
	feed := feedtest.Follow(t, leader)
	feedtest.Next(t, feed)
	extension := feedtest.State(1, token)
	extension.Extension = 1
	_, err = leader.WriteEntry(t.Context(), extension)
	feedtest.Passing(t, err, "0 of 1 replicas")
	if err := leaderelection.Transfer(t.Context(), redis.NewDecider(c, "k", nil), "b"); err != nil {
		t.Fatal(err)
	}
	feedtest.Passing(t, feedtest.ReadError(t, leader), "0 of 1 replicas")
	feedtest.Passing(t, feedtest.Next(t, feed).Err, "0 of 1 replicas")
	_, err = leader.WriteEntry(t.Context(), feedtest.State(2, token))
	var lost *leaderelection.LostRaceError
	if !errors.As(err, &lost) || lost.Current != nil {
		t.Errorf("%v, with %+v", err, lost.Current)
	}
	if e := feedtest.Read(t, redis.NewDecider(c, "k", &redis.Options{WaitReplicas: 1})); e.Successor != "b" {
		t.Errorf("who is not concerned reads %+v", e)
	}
	replica.Start(t)
	if e := readWhenItWorks(t, leader); e.Successor != "b" {
		t.Errorf("%+v", e)
	}
}

func readWhenItWorks(t *testing.T, d *redis.Decider) (e *leaderelection.RaceEntry) {
	t.Helper()
	feedtest.Eventually(t, "it is read", func() (ok bool) {
		var err error
		e, err = d.ReadCurrent(t.Context())
		return err == nil
	})
	return e
}

// A record that the replicas may not have stays in doubt with a new client, which uses nothing of the
// old one's.
func TestInherit(t *testing.T) {
	addr, opts := stores.Redis(t).Addr, &redis.Options{WaitReplicas: 1, WaitTimeout: time.Millisecond}
	old := client(t, addr)
	first, second := redis.NewDecider(old, "k", opts), redis.NewDecider(client(t, addr), "k", opts)
	feedtest.Passing(t, feedtest.WriteError(t, first, 1, nil), "0 of 1 replicas")
	feedtest.Reads(t, second, 1) // as any other's record
	second.Inherit(first)
	_ = old.Close()
	feedtest.Passing(t, feedtest.ReadError(t, second), "0 of 1 replicas")
}

// Without permission for WAIT it is not known whether replicas have a write.
func TestWaitNotPermitted(t *testing.T) {
	server := stores.Redis(t)
	server.Ask(t, "ACL SETUSER candidate on >secret ~k &* +@all -wait")
	d := rd.Opened(t, fmt.Sprintf("redis://candidate:secret@%s?key=k&wait_replicas=1", server.Addr))
	feedtest.Permanent(t, feedtest.WriteError(t, d, 1, nil), `"k"`, "WAIT", "ACL")
}

// The master dies, Sentinel promotes the replica, and the election goes on there
// with what was confirmed.
func TestSentinelFailOver(t *testing.T) {
	master := stores.Redis(t)
	stores.RedisReplica(t, master)
	sentinel := stores.RedisSentinel(t, master, 1)
	d := rd.Opened(t, "redis://"+sentinel.Addr+"?key=k&master_name=main&wait_replicas=1")
	token := feedtest.Write(t, d, 7, nil)
	observer := rd.Opened(t, "redis://"+sentinel.Addr+"?key=k&master_name=main")
	feed := feedtest.Follow(t, observer)
	feedtest.Number(t, feed, 7)
	master.Stop()
	feedtest.Passing(t, feedtest.Next(t, feed).Err, `"k"`)
	e := readWhenItWorks(t, observer)
	if e.ElectionNumber != 7 || e.Token != token {
		t.Fatalf("after the fail-over: %+v", e)
	}
	feedtest.Write(t, observer, 8, e.Token)
	if n := feedtest.Next(t, feedtest.Follow(t, observer)); n.Err != nil || n.ElectionNumber != 8 {
		t.Errorf("%+v", n)
	}
	if _, err := d.WriteEntry(t.Context(), feedtest.State(9, token)); err == nil {
		t.Error("an old token is as good as new after the fail-over")
	}
}

// Waiting for replicas and following work in a Cluster, in which each key has a
// master of its own.
func TestClusterWithReplica(t *testing.T) {
	nodes := stores.RedisCluster(t, 2)
	for i := range 6 { // on either node
		key := fmt.Sprintf("election:%d", i)
		c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{nodes[0].Addr}, MaxRetries: -1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = c.Close() })
		plain := redis.NewDecider(c, key, nil)
		feed := feedtest.Follow(t, plain)
		feedtest.Next(t, feed)
		token := feedtest.Write(t, plain, 1, nil)
		if n := feedtest.Next(t, feed); n.Err != nil || n.Token != token {
			t.Fatalf("%+v", n)
		}
		waits := redis.NewDecider(c, key, &redis.Options{WaitReplicas: 1, WaitTimeout: time.Millisecond})
		feedtest.Passing(t, feedtest.WriteError(t, waits, 2, token), "0 of 1 replicas")
		feedtest.Number(t, feed, 2)
	}
}

// A replica that hangs for longer than a term ends the leadership of a candidate
// that waits for it. When it goes on, the candidate leads again.
func TestReplicaHangs(t *testing.T) {
	for name, user := range map[string]string{"a user who may do anything": "", "a user with the permissions documented": "candidate:secret@"} {
		t.Run(name, func(t *testing.T) {
			server := stores.Redis(t)
			replica := stores.RedisReplica(t, server, "--enable-debug-command", "yes")
			grant(t, server, append(documented(t), "+wait"))
			d := rd.Opened(t, fmt.Sprintf("redis://%s%s?key=k&wait_replicas=1", user, server.Addr))
			c, elected := feedtest.Campaign(t, d, "a", time.Second, 50*time.Millisecond)
			<-elected
			go func() { _, _ = stores.AskRedis(t.Context(), replica.Addr, "DEBUG SLEEP 2") }()
			feedtest.Eventually(t, "it is ousted", func() bool { return !c.View().ValueInFuture() })
			begun := time.Now()
			<-elected
			t.Logf("leads again after %v", time.Since(begun))
		})
	}
}

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
	w, err := rd.Opened(t, fmt.Sprintf("redis://candidate:secret@%s?key=k", server.Addr)).Durability(t.Context())
	feedtest.Warns(t, w, "appendonly is no")
	feedtest.Says(t, err, `"k"`, "refuses CONFIG GET", "appendfsync", "min-replicas-to-write")

	server.Ask(t, "ACL SETUSER candidate -info")
	w, err = rd.Opened(t, fmt.Sprintf("redis://candidate:secret@%s?key=k", server.Addr)).Durability(t.Context())
	feedtest.Warns(t, w)
	feedtest.Says(t, err, "refuses INFO", "refuses CONFIG")

	// What the documentation calls optional is enough.
	grant(t, server, append(documented(t), "+info", "+config|get"))
	feedtest.Examines(t, rd.Opened(t, fmt.Sprintf("redis://candidate:secret@%s?key=k", server.Addr)), "appendonly is no")
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
		w, err := rd.Opened(t, fmt.Sprintf("redis://%s?key=election:%d&cluster=true", nodes[0].Addr, i)).Durability(t.Context())
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
