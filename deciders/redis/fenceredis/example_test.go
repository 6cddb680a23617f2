package fenceredis_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis/fenceredis"
	"github.com/c8e606e4/leaderelection/fence"
)

func ExampleSet() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	ctx := context.Background()
	set := func(number leaderelection.ElectionNumber, value string) {
		token := fence.Token{Election: "orders", Number: number} // Gate.Token returns it
		fmt.Println(fenceredis.Set(ctx, client, token, "{orders}:state", value))
	}
	set(1, "17 open") // the first leader
	set(2, "18 open") // the second
	set(1, "99 open") // the first again: it was stopped for longer than its term
	fmt.Println(client.Get(ctx, "{orders}:state").Val())
	// This prints:
	// <nil>
	// <nil>
	// fence: stale token orders:1: 2 has been seen. If this process leads, the election's record was set back: run leaderelect reset --after 2
	// 18 open
}

// Any command can be fenced; its keys are listed for the sake of clusters.
func ExampleDo() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	token := fence.Token{Election: "orders", Number: 7}
	open, err := fenceredis.Do(context.Background(), client, token, []string{"{orders}:open"}, "INCRBY", "{orders}:open", 5)
	fmt.Println(open, err)
	// This prints: 5 <nil>
}

// A script of one's own begins with Check: KEYS[1] is the fence, ARGV[1] the number.
func ExampleCheck() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	move := redis.NewScript(fenceredis.Check + `
redis.call('DECRBY', KEYS[2], ARGV[2])
redis.call('INCRBY', KEYS[3], ARGV[2])
return {1}`)
	keys := []string{fenceredis.Key("orders"), "{orders}:open", "{orders}:done"}
	for _, number := range []string{"2", "1"} {
		fmt.Println(move.Run(context.Background(), client, keys, number, 3).Slice())
	}
	// This prints:
	// [1] <nil>
	// [0 2] <nil>
}
