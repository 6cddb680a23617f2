package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/shard"
)

// groupStores are the stores on whose servers a group is run, those of other families than
// the scripts': one that pushes, one that publishes, and tables that are polled.
var groupStores = []string{"etcd", "redis", "mysql"}

// A group on real servers: shards are divided, moved and drained, and when the member that
// coordinates is killed the other has them all. No two commands ever ran at once for a shard.
func TestShardsOnStores(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	for _, name := range groupStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, env := everyStore[name](t)
			if len(env) > 0 {
				t.Fatalf("%s needs an environment, which the observer here has not", name)
			}
			newest := observed(t, url)
			settles := func(want map[string]int) {
				t.Helper()
				if !eventually(func() bool { return shareOut(newest(), want) }) {
					t.Fatalf("it is not as wanted, %v", want)
				}
			}
			does := func(says string, args ...string) {
				t.Helper()
				args = append([]string{"shards", args[0], "--skew", "100ms", "--poll", "200ms", url}, args[1:]...)
				if out, err := exec.Command("leaderelect", args...).CombinedOutput(); err != nil || !strings.Contains(string(out), says) {
					t.Errorf("%v: %v, want %q in:\n%s", args, err, says, out)
				}
			}
			dir := t.TempDir()
			const shards = 8
			join := func(id string) *candidate {
				return launch(t, func(c *exec.Cmd) { c.Args[len(c.Args)-1] = filepath.Join(dir, "{shard}") },
					"shards", "run", "--id", id, "--shards", fmt.Sprint(shards), "--term", "5s", "--skew", "100ms", "--poll", "200ms", url, "--", "child")
			}
			a := join("a")
			settles(map[string]int{"a": shards})
			b := join("b")
			settles(map[string]int{"a": shards / 2, "b": shards / 2})
			does("b owns shard 0, with token ", "move", "0", "b")
			does("b owns 0 shards that are not pinned to it", "drain", "b")
			settles(map[string]int{"a": shards - 1, "b": 1})
			does("8: 8 owned, 0 unowned", "status")
			does("b gets its share", "undrain", "b")
			_ = a.Process.Signal(syscall.SIGKILL)
			settles(map[string]int{"b": shards})
			does("8: 8 owned, 0 unowned", "status")
			does("ok           two names are two records", "doctor", "--shards", fmt.Sprint(shards))
			b.stops(t, 0)
			for i := range shards {
				if err := overlap(readLedger(t, filepath.Join(dir, fmt.Sprint(i)))); err != nil {
					t.Errorf("shard %d: %v", i, err)
				}
			}
		})
	}
}

// observed returns what the newest assignment of a group is, or nil.
func observed(t *testing.T, url string) func() *shard.Assignment {
	g, err := store.OpenGroup(t.Context(), url, "coordinator", patience)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var newest atomic.Pointer[shard.Assignment]
	go func() {
		defer close(ended)
		_ = shard.WatchConfig{Store: g.Store, PollInterval: 200 * time.Millisecond}.Watch(ctx, func(_ context.Context, a *shard.Assignment) { newest.Store(a) })
	}()
	t.Cleanup(func() { // before the server ends
		cancel()
		<-ended
		g.Close()
	})
	return newest.Load
}

// shareOut reports whether each shard has an owner, members have as many as is wanted, and
// nothing moves.
func shareOut(a *shard.Assignment, want map[string]int) bool {
	if a == nil {
		return false
	}
	owned := map[string]int{}
	for i := range a.Len() {
		_, o := a.Shard(i)
		if owned[o.Member]++; o.Moving || owned[o.Member] > want[o.Member] {
			return false
		}
	}
	return true
}

// A user with the permissions that the README names may do all that a group needs, and one
// who may write a single record is told what is missing.
func TestGroupPermissions(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	server := stores.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	keys := strings.Fields(readme(t, "\n\\| redis \\|.*\\| `([^|]*)` \\|\n"))
	if len(keys) != 3 { // two, and a word between them
		t.Fatalf("the README's permissions are %q", keys)
	}
	for _, c := range []struct{ user, key, channel, says string }{
		{"all", strings.Trim(keys[0], "`"), strings.Trim(keys[2], "`"), "ok           two names are two records"},
		{"one", "~orders-coordinator", "&leaderelection:orders-coordinator", "members write records of several names"},
	} {
		rules := []any{"ACL", "SETUSER", c.user, "on", ">secret", c.key, c.channel,
			"+eval", "+hmget", "+exists", "+subscribe", "+unsubscribe", "+ping", "+time", "+hset", "+persist", "+publish"}
		if err := client.Do(t.Context(), rules...).Err(); err != nil {
			t.Fatal(err)
		}
		url := "redis://" + c.user + ":secret@" + server.Addr + "/0?key=orders"
		out, err := exec.Command("leaderelect", "shards", "doctor", "--shards", "8", url).CombinedOutput()
		if !strings.Contains(string(out), c.says) || (err == nil) != (c.user == "all") || strings.Contains(string(out), "secret") {
			t.Errorf("%s: %v, want %q in:\n%s", c.user, err, c.says, out)
		}
	}
}
