// Loop is the service of docs/go-service.md without callbacks: it waits until it leads.
//
//	ELECTION=/tmp/loop.json go run ./examples/loop
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	campaign, err := leaderelection.Config{
		Decider:  file.NewDecider(os.Getenv("ELECTION"), nil),
		LeaderID: fmt.Sprint("loop-", os.Getpid()),
	}.Start(ctx)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for {
		leading, view, err := campaign.Leadership(ctx) // waits until this instance leads
		if err != nil {
			break // ctx has ended
		}
		for leading.Err() == nil && view.ValueInFuture() {
			fmt.Println("act with token", view.ElectionNumber())
			view.Clock().SleepFor(leading, time.Second)
		}
	}
	<-campaign.Done() // until it is released
}
