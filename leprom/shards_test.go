package leprom_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
	"github.com/c8e606e4/leaderelection/shard"
)

// Two members share six shards, and one leaves: what each of them has, and what both know of
// the group.
func TestMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		var records memgroup.Records
		join := func(id string) (*shard.Member, func()) {
			cfg := shard.Config{
				Store:    records.Store,
				MemberID: id, Shards: shard.Numbered(6), OnOwned: func(ctx context.Context, _ *shard.Owned) error { <-ctx.Done(); return nil },
			}
			g, err := r.Member("orders", cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Member("orders", cfg); err == nil {
				t.Error("measured twice")
			}
			cfg.ShardTrace = g.Trace()
			m, err := cfg.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return m, g.Close
		}
		a, closeA := join("a")
		time.Sleep(time.Minute)
		b, closeB := join("b")
		time.Sleep(time.Minute)
		r.expect(t, "orders/a", map[string]float64{
			"shards_owned": 3, "shards_placed": 6, "shards_unowned": 0, "shards_moving": 0, "shards_failing": 0, "shards_taken_total": 6, "shards_let_go_total{moved}": 3,
		})
		r.expect(t, "orders/b", map[string]float64{"shards_owned": 3, "shards_taken_total": 3, "shards_let_go_total{moved}": 0})
		if v := r.read(t)["orders/a shards_assignment_version"]; v < 2 {
			t.Errorf("version %v", v)
		}
		_ = a.Leave(t.Context())
		time.Sleep(time.Minute)
		r.expect(t, "orders/a", map[string]float64{"shards_owned": 0, "shards_let_go_total{shutdown}": 3})
		r.expect(t, "orders/b", map[string]float64{"shards_owned": 6, "shards_taken_total": 6})
		_ = b.Leave(t.Context())
		time.Sleep(time.Second)
		closeA()
		closeB()
		closeB()
		for series := range r.read(t) {
			t.Errorf("left behind: %s", series)
		}
	})
}
