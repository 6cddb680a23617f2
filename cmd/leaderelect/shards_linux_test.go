package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// groupStores are the stores on whose servers a group is run, those of other families than
// the scripts': a key-value store that pushes, one that publishes, and tables that are polled.
var groupStores = []string{"etcd", "redis", "mysql"}

// members are what a group's status says of each.
func members(t *testing.T, ask func(args ...string) (string, error)) (owned map[string]int, calm bool) {
	t.Helper()
	out, err := ask("status", "--json")
	var s struct {
		Shards, Owned, Unowned, Moving, Lost int
		Members                              []struct {
			ID    string
			Owned int
		}
	}
	if json.Unmarshal([]byte(out), &s) != nil {
		return nil, false
	}
	owned = map[string]int{}
	for _, m := range s.Members {
		owned[m.ID] += m.Owned
	}
	return owned, err == nil && s.Moving == 0
}

// A group on real servers: shards are divided, moved and drained, and when a member is
// killed the other has them all. No two commands ever ran at once for a shard.
func TestShardsOnStores(t *testing.T) {
	t.Parallel()
	for _, name := range groupStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, env := everyStore[name](t)
			dir := t.TempDir()
			const shards = 8
			join := func(id string) *candidate {
				return launch(t, func(c *exec.Cmd) {
					c.Args[len(c.Args)-1] = filepath.Join(dir, "{shard}")
					c.Env = append(c.Env, env...)
				}, "shards", "run", "--id", id, "--shards", fmt.Sprint(shards), "--term", "5s", "--skew", "100ms", "--poll", "200ms", url, "--", "child")
			}
			ask := func(args ...string) (string, error) {
				c := exec.Command("leaderelect", append([]string{"shards", args[0], url}, args[1:]...)...)
				c.Env = append(os.Environ(), append(env, "LEADERELECT_POLL=200ms", "LEADERELECT_SKEW=100ms")...)
				out, err := c.CombinedOutput()
				return string(out), err
			}
			settles := func(want map[string]int) {
				t.Helper()
				var owned map[string]int
				if !eventually(func() bool {
					var calm bool
					owned, calm = members(t, ask)
					for id, n := range want {
						calm = calm && owned[id] == n
					}
					return calm
				}) {
					t.Fatalf("they own %v, want %v", owned, want)
				}
			}
			does := func(says string, args ...string) {
				t.Helper()
				if out, err := ask(args...); err != nil || !strings.Contains(out, says) {
					t.Errorf("shards %v: %v, want %q in:\n%s", args, err, says, out)
				}
			}
			a := join("a")
			settles(map[string]int{"a": shards})
			b := join("b")
			settles(map[string]int{"a": shards / 2, "b": shards / 2})
			does("b owns shard 0, with token ", "move", "0", "b")
			does("a owns 0 shards", "drain", "a")
			settles(map[string]int{"a": 0, "b": shards})
			does("", "undrain", "a")
			settles(map[string]int{"a": shards / 2, "b": shards / 2})
			_ = a.Process.Signal(syscall.SIGKILL)
			settles(map[string]int{"b": shards})
			does("ok           two names are two records", "doctor", "--term", "5s", "--shards", fmt.Sprint(shards))
			_ = b.Process.Signal(syscall.SIGTERM)
			if code := b.code(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			for i := range shards {
				if err := overlap(readLedger(t, filepath.Join(dir, fmt.Sprint(i)))); err != nil {
					t.Errorf("shard %d: %v", i, err)
				}
			}
		})
	}
}
