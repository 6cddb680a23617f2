package shard_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/shard"
)

// Two members of a group share four shards. When one leaves, the other has them all.
func ExampleConfig_Start() {
	var mu sync.Mutex
	records := map[string]*memory.Decider{} // of a real group: a bucket, a table, a database
	store := func(name string) (leaderelection.RaceDecider, error) {
		mu.Lock()
		defer mu.Unlock()
		if records[name] == nil {
			records[name] = memory.NewDecider()
		}
		return records[name].Handle(), nil
	}
	join := func(id string) *shard.Member {
		m, err := shard.Config{
			Store: store, MemberID: id, Shards: shard.Numbered(4), ClockPolicy: leaderelection.SharedClock, TermLength: time.Second,
			OnOwned: func(ctx context.Context, o *shard.Owned) error {
				for ctx.Err() == nil && o.ValueInFuture() {
					// Work on the shard o.Name(), and send o.ElectionNumber() along with each act.
					time.Sleep(10 * time.Millisecond)
				}
				return nil
			},
		}.Start(context.Background())
		if err != nil {
			panic(err)
		}
		return m
	}
	has := func(m *shard.Member, n int) {
		for len(m.Owned()) != n {
			time.Sleep(10 * time.Millisecond)
		}
	}
	a, b := join("a"), join("b")
	has(a, 2)
	has(b, 2)
	fmt.Println("two each")
	if err := b.Leave(context.Background()); err != nil {
		fmt.Println(err)
	}
	has(a, 4)
	fmt.Println("all to one")
	_ = a.Leave(context.Background())
	// Output:
	// two each
	// all to one
}

func ExampleForKey() {
	fmt.Println(shard.ForKey("customer-1", 64), shard.ForKey("customer-2", 64), shard.ForKey("", 1))
	// Output: 33 5 0
}

// A member writes for each shard under that shard's token. The resource has a guard for each, and
// refuses what an owner before sends late.
func ExampleOwned_Gate() {
	guard := fence.NewGuard("orders/0", 0)
	written := make(chan error)
	member, err := shard.Config{
		Store:    func(string) (leaderelection.RaceDecider, error) { return memory.NewDecider(), nil }, // of a real group: a record of that name
		MemberID: "worker-1", Shards: shard.Numbered(1), ClockPolicy: leaderelection.SharedClock,
		OnOwned: func(ctx context.Context, o *shard.Owned) error {
			// ctx = fence.WithGate(ctx, o.Gate("orders")) is for a Transport.
			token, err := o.Gate("orders").Token()
			if err == nil {
				fmt.Println("writes by the token of", token.Election)
				err = guard.Check(ctx, token)
			}
			written <- err
			return nil
		},
	}.Start(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-written)
	_ = member.Leave(context.Background())
	// Output:
	// writes by the token of orders/0
	// <nil>
}
