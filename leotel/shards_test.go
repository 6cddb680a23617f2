package leotel_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/leotel"
	"github.com/c8e606e4/leaderelection/shard"
)

// A member that owns four shards gives two away when another joins: gauges, counters, and a
// span for each that reaches over its callback's end.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
		g, err := leotel.NewGroup(leotel.Options{
			Election: "orders", Candidate: "a",
			MeterProvider:  metric.NewMeterProvider(metric.WithReader(r.reader)),
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans)),
		})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		records := map[string]*memory.Decider{}
		join := func(id string, trace *shard.Trace) *shard.Member {
			m, err := shard.Config{
				Store: func(name string) (le.RaceDecider, error) {
					mu.Lock()
					defer mu.Unlock()
					if records[name] == nil {
						records[name] = memory.NewDecider()
					}
					return records[name].Handle(), nil
				},
				MemberID: id, Shards: shard.Numbered(4), ShardTrace: trace,
				OnOwned: func(ctx context.Context, _ *shard.Owned) {
					<-ctx.Done()
					time.Sleep(3 * time.Second)
				},
			}.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		a := join("a", g.Trace(nil))
		time.Sleep(time.Minute)
		b := join("b", nil)
		time.Sleep(time.Minute)
		got := r.read(t)
		for name, want := range map[string]float64{
			"shards.owned": 2, "shards.placed": 4, "shards.unowned": 0,
			"shards.taken": 4, "shards.let_go{moved}": 2, "shards.let_go{shutdown}": 0,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v (%v), want %v", name, v, ok, want)
			}
		}
		if got["shards.assignment.version"] < 2 {
			t.Errorf("the version is %v", got["shards.assignment.version"])
		}
		spans := r.spans.Ended()
		for _, s := range spans {
			if took := s.EndTime().Sub(s.StartTime()); s.Name() != "leaderelection.shard.let_go" || took < 3*time.Second || took > 4*time.Second {
				t.Errorf("span %s took %v, the callback's end 3s", s.Name(), took)
			}
		}
		if len(spans) != 2 {
			t.Errorf("%d spans", len(spans))
		}
		_ = a.Leave(t.Context())
		_ = b.Leave(t.Context())
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}
