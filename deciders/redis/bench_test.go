package redis_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func BenchmarkRedis(b *testing.B) { decidertest.Bench(b, elections(stores.Redis(b).Addr, nil)) }

// BenchmarkBare is the client's own call with the same script and a record as
// long: what BenchmarkRedis takes beyond it is ours.
func BenchmarkBare(b *testing.B) {
	c := client(b, stores.Redis(b).Addr)
	feedtest.Write(b, redis.NewDecider(c, "k", nil), 1, nil)
	record := c.HGet(b.Context(), "k", "record").Val()
	b.Run("Read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := c.Eval(b.Context(), redis.ReadScript, []string{"k"}, "mark-1").Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Write", func(b *testing.B) {
		version := c.HGet(b.Context(), "k", "version").Val()
		b.ReportAllocs()
		for b.Loop() {
			a, err := c.Eval(b.Context(), redis.WriteScript, []string{"k"}, version, record, "leaderelection:k", "mark-1").Slice()
			if err != nil || a[0] != int64(1) {
				b.Fatal(a, err)
			}
			version = a[1].(string)
		}
	})
}
