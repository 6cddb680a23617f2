package redis

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
)

// A record that the replicas may not have stays in doubt with a new client.
func TestInherit(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	first, second := NewDecider(client, "e", &Options{WaitReplicas: 1}), NewDecider(client, "e", &Options{WaitReplicas: 1})
	first.b.leaderships.Add("i") // has no response
	read := &leaderelection.RaceEntry{Incarnation: "i", Token: version("1-2-3")}
	if second.Inherit(first); !second.b.doubtful(read) {
		t.Error("the new client takes the record for one that counts")
	}
	if first.b.run == second.b.run {
		t.Error("the new client runs nothing of its own")
	}
}
