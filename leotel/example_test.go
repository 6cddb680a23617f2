package leotel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/leotel"
)

// A candidate with metrics. A real program's MeterProvider has an exporter in place
// of the reader: see examples/metrics for Prometheus.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reader := metric.NewManualReader()
	telemetry, err := leotel.New(leotel.Options{
		Election: "orders", Candidate: "worker-7", MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer telemetry.Close()

	told := make(chan struct{})
	campaign, err := leaderelection.Config{
		Decider:   memory.NewDecider(), // a real program uses a store that all can reach
		LeaderID:  "worker-7",
		OnElected: func(context.Context, *leaderelection.TimeView) {},
		Trace: telemetry.Trace(&leaderelection.Trace{ // nil, where there are no hooks of one's own
			StatusChanged: func(c leaderelection.StatusChange) {
				if c.To == leaderelection.Leading {
					close(told)
				}
			},
		}),
	}.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	<-told
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if gauge, is := m.Data.(metricdata.Gauge[int64]); is && m.Name == "leaderelection.is_leader" {
			fmt.Println(m.Name, gauge.DataPoints[0].Value)
		}
	}
	cancel()
	<-campaign.Done()
	// Output:
	// leaderelection.is_leader 1
}
