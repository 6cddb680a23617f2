package leotel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
	"github.com/c8e606e4/leaderelection/shard"
)

// A member that owns four shards gives two away when another joins: gauges, counters, and a
// span for each that reaches over its callback's end.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
		g, err := r.telemetry().Member("orders", shard.Config{MemberID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		var records memgroup.Records
		join := func(id string, trace *shard.Trace) *shard.Member {
			m, err := shard.Config{
				Store:    records.Store,
				MemberID: id, Shards: shard.Numbered(4), ShardTrace: trace,
				OnOwned: func(ctx context.Context, _ *shard.Owned) error {
					<-ctx.Done()
					time.Sleep(3 * time.Second)
					return nil
				},
			}.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		a := join("a", g.Trace())
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
