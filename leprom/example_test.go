package leprom_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/leprom"
)

// A candidate with metrics. A real program serves the registry's with promhttp.
func Example() {
	registry := prometheus.NewRegistry()
	metrics := leprom.New(nil) // one for all elections of the process
	registry.MustRegister(metrics)

	told := make(chan struct{})
	config := leaderelection.Config{
		Decider:   memory.NewDecider(), // a real program uses a store that all can reach
		LeaderID:  "worker-7",
		OnElected: func(context.Context, *leaderelection.TimeView) {},
	}
	election, err := metrics.Candidate("orders", config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer election.Close()
	config.Trace = leaderelection.JoinTraces(election.Trace(), &leaderelection.Trace{
		StatusChanged: func(c leaderelection.StatusChange) {
			if c.To == leaderelection.Leading {
				close(told)
			}
		},
	})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	campaign, err := config.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	<-told
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == "leaderelection_is_leader" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	cancel()
	<-campaign.Done()
	// Output: leaderelection_is_leader 1
}
