package leotel_test

import (
	"context"
	"log"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/leotel"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A candidate with metrics, for the program's MeterProvider and TracerProvider.
func Example() {
	telemetry := leotel.New(nil) // one for all elections of the process
	config := leaderelection.Config{
		Decider:   memory.NewDecider(), // a real program uses a store that all can reach
		LeaderID:  "worker-7",
		OnElected: func(context.Context, *leaderelection.TimeView) {},
	}
	election, err := telemetry.Candidate("orders", config)
	if err != nil {
		log.Fatal(err)
	}
	defer election.Close()
	config.Trace = election.Trace()
	log.Print(config.Acquire(context.Background()))
}
