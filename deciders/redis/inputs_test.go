package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// What is at the key and no record of ours is reported, and left alone.
func TestForeignValueIsLeftAlone(t *testing.T) {
	c := client(t, stores.Redis(t).Addr)
	for name, put := range map[string][]any{
		"string":            {"SET", "", "hello"},
		"list":              {"RPUSH", "", "a", "b"},
		"another hash":      {"HSET", "", "leader", "a"},
		"no version":        {"HSET", "", "record", `{"leaderelection":1}`},
		"no record":         {"HSET", "", "version", "17-x-1"},
		"an empty version":  {"HSET", "", "version", "", "record", ""},
		"truncated record":  {"HSET", "", "version", "17-x-1", "record", `{"leaderelection":1,"leader_id":"a"`},
		"hand-edited":       {"HSET", "", "version", "17-x-1", "record", `{"leaderelection":1,"leader_id":7}`},
		"of a newer format": {"HSET", "", "version", "17-x-1", "record", `{"leaderelection":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			key := feedtest.Unique()
			put[1] = key
			if err := c.Do(t.Context(), put...).Err(); err != nil {
				t.Fatal(err)
			}
			before := c.Dump(t.Context(), key).Val()
			feedtest.Foreign(t, redis.NewDecider(c, key, nil), key)
			if after := c.Dump(t.Context(), key).Val(); after == "" || after != before {
				t.Error("the value was changed")
			}
		})
	}
}

func TestEmptyKeyAndClosedClient(t *testing.T) {
	c := client(t, stores.Redis(t).Addr)
	d := redis.NewDecider(c, "", nil)
	feedtest.Refuses(t, d, "the key is empty")

	d = redis.NewDecider(c, "k", nil)
	token := feedtest.Write(t, d, 1, nil)
	if err := d.Close(); err != nil { // the client is the caller's
		t.Fatal(err)
	}
	token = feedtest.Write(t, d, 2, token)
	_ = c.Close()
	feedtest.Permanent(t, feedtest.WriteError(t, d, 3, token), "was closed")
	feedtest.Permanent(t, feedtest.Next(t, feedtest.Follow(t, d)).Err, "was closed")
}

// Passwords, and the least permissions that the documentation names.
func TestAccess(t *testing.T) {
	server := stores.Redis(t)
	server.Ask(t, "ACL SETUSER candidate on >secret ~k &leaderelection:k +eval +hmget +exists +subscribe +unsubscribe +ping +time +hset +persist +publish")
	server.Ask(t, "ACL SETUSER observer on >secret ~k &leaderelection:k +eval +hmget +exists +subscribe +unsubscribe +ping")
	server.Ask(t, "ACL SETUSER default -@all +ping >password")

	as := func(user string) *redis.Decider {
		return opened(t, fmt.Sprintf("redis://%s@%s?key=k", user, server.Addr))
	}
	candidate, observer := as("candidate:secret"), as("observer:secret")
	feed := feedtest.Follow(t, observer)
	feedtest.Number(t, feed, 0)
	token := feedtest.Write(t, candidate, 1, nil)
	feedtest.Number(t, feed, 1)
	feedtest.Reads(t, observer, 1)
	_, err := observer.WriteEntry(t.Context(), feedtest.State(2, token))
	feedtest.Denied(t, err, `"k"`, "ACL")

	for user, word := range map[string]string{
		"candidate:wrong":  "does not know this user and password",
		"nobody:secret":    "does not know this user and password",
		"default:password": "ACL lacks",
	} {
		d := as(user)
		for _, err := range feedtest.Errors(t, d) {
			feedtest.Denied(t, err, `"k"`, word)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "password\"")) {
			t.Errorf("a password is in the error: %v", err)
		}
	}
	feedtest.Denied(t, feedtest.ReadError(t, redis.NewDecider(client(t, server.Addr), "k", nil)), `"k"`, "NOAUTH")
	feedtest.Denied(t, feedtest.ReadError(t, opened(t, fmt.Sprintf("redis://candidate:secret@%s?key=other", server.Addr))), `"other"`, "ACL")

	t.Setenv("REDISCLI_AUTH", "secret")
	feedtest.Reads(t, as("observer"), 1)
}

// A client that is not made for what the server is.
func TestWrongServer(t *testing.T) {
	nodes := stores.RedisCluster(t, 2)
	var moved error
	for _, n := range nodes {
		if _, err := redis.NewDecider(client(t, n.Addr), "k", nil).ReadCurrent(t.Context()); err != nil {
			moved = err
		}
	}
	feedtest.Permanent(t, moved, `"k"`, "this is a Cluster")

	c := goredis.NewClient(&goredis.Options{Addr: nodes[0].Addr, DB: 3, MaxRetries: -1})
	defer c.Close()
	feedtest.Permanent(t, feedtest.ReadError(t, redis.NewDecider(c, "k", nil)), "a Cluster has database 0 only")

	master := stores.Redis(t)
	replica := stores.RedisReplica(t, master)
	d := redis.NewDecider(client(t, replica.Addr), "k", nil)
	if e := feedtest.Read(t, d); !e.Vacant() {
		t.Errorf("%+v", e)
	}
	_, err := d.WriteEntry(t.Context(), feedtest.State(1, nil))
	feedtest.Passing(t, err, "this is a replica") // it may be promoted

	old := goredis.NewClient(&goredis.Options{Addr: master.Addr, DB: 99, MaxRetries: -1})
	defer old.Close()
	feedtest.Permanent(t, feedtest.ReadError(t, redis.NewDecider(old, "k", nil)), "choose another database")
}

// What the server says while it cannot write may pass.
func TestServerThatCannotWrite(t *testing.T) {
	server := stores.Redis(t)
	d := redis.NewDecider(client(t, server.Addr), "k", nil)
	token := feedtest.Write(t, d, 1, nil)
	for name, c := range map[string]struct{ set, unset string }{
		"out of memory":   {"CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
		"too few replica": {"CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"},
	} {
		server.Ask(t, c.set)
		_, err := d.WriteEntry(t.Context(), feedtest.State(9, token))
		t.Logf("%s: %v", name, err)
		feedtest.Passing(t, err, `"k"`)
		feedtest.Reads(t, d, 1)
		server.Ask(t, c.unset)
	}
	feedtest.Write(t, d, 2, token)
	if _, err := open(context.Background(), "redis://"+server.Addr); err == nil {
		t.Error("an address without a key was opened")
	}
}

// A bare number counts nanoseconds: nobody means so few.
func TestBareNumbers(t *testing.T) {
	c := client(t, "127.0.0.1:1")
	feedtest.Refuses(t, redis.NewDecider(c, "one", &redis.Options{FeedSilence: 10}), "nanoseconds")
	feedtest.Refuses(t, redis.NewDecider(c, "one", &redis.Options{WaitTimeout: 10}), "nanoseconds")
	feedtest.Refuses(t, redis.NewDecider(c, "one", &redis.Options{FeedSilence: -1}), "negative")
}
