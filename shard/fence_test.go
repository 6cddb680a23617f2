package shard_test

import (
	"context"
	"fmt"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/shard"
)

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
