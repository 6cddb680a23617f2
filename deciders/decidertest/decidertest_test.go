package decidertest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

func newMemory(testing.TB) func() leaderelection.RaceDecider {
	election := memory.NewDecider()
	return func() leaderelection.RaceDecider { return election.Handle() }
}

func newPolled(testing.TB) func() leaderelection.RaceDecider {
	election := memory.NewDecider()
	return func() leaderelection.RaceDecider { return election.Handle().Polled() }
}

// A decider without a feed passes.
func TestPolled(t *testing.T) { decidertest.Run(t, newPolled, nil) }

// The smallest Options that make sense are enough for a good decider.
func TestFewRounds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // nor does the suite leave anything behind
	decidertest.Run(t, newMemory, &decidertest.Options{Rounds: 1, Writers: 2})
}
