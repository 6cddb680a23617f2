package hinted_test

import (
	"context"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/hinted"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// On top of a store in memory, which costs next to nothing: what is measured is the way
// from an announcement to a read.
func BenchmarkDecider(b *testing.B) {
	decidertest.Bench(b, func(testing.TB) func() leaderelection.RaceDecider {
		var signal hinted.Signal
		election := memory.NewDecider()
		return func() leaderelection.RaceDecider {
			return hinted.NewDecider(election.Handle().Polled(), signal.Hints, &hinted.Options{
				MinInterval: time.Nanosecond, Announce: func(context.Context) { signal.Changed() },
			})
		}
	})
}
