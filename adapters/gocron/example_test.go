package gocron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	le "github.com/c8e606e4/leaderelection"
	legocron "github.com/c8e606e4/leaderelection/adapters/gocron"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A scheduler whose jobs run on the leader.
func ExampleNewElector() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	elected := make(chan struct{})
	campaign, err := le.Config{
		Decider:   memory.NewDecider(), // a real program uses a store that all can reach
		LeaderID:  "worker-7",
		OnElected: func(context.Context, *le.TimeView) { close(elected) },
	}.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(legocron.NewElector(campaign)))
	if err != nil {
		fmt.Println(err)
		return
	}
	billed := make(chan string, 1)
	_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(func() {
		view := campaign.View()
		select { // before each act: if view.ValueInFuture() ...
		case billed <- fmt.Sprint("billing with a fencing token: ", view.ElectionNumber() > 0):
		default:
		}
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler.Start()
	<-elected
	fmt.Println(<-billed)

	_ = scheduler.Shutdown()
	cancel()
	<-campaign.Done()
	// Output:
	// billing with a fencing token: true
}
