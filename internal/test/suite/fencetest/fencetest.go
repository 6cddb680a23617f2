// Package fencetest is what the tests of the fences share.
package fencetest

import (
	"context"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/fence"
)

// Orders is a token of the election "orders".
func Orders(n uint64) fence.Token {
	return fence.Token{Election: "orders", Number: leaderelection.ElectionNumber(n)}
}

// NotTokens are what every fence refuses with fence.ErrMalformed.
func NotTokens() []fence.Token {
	return []fence.Token{Orders(1 << 63), Orders(1<<64 - 1), {Number: 7}}
}

// Lead wins the election "orders", whose number is 2 then: a record that is new would make
// it the time's. It returns the leadership's gate and what ends the leadership, at the
// latest with the test.
func Lead(t testing.TB) (gate fence.Gate, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	views := make(chan *leaderelection.TimeView, 1)
	store := memory.NewDecider()
	store.Replace(&leaderelection.RaceEntry{LeaderID: "before", ElectionNumber: 1})
	campaign, err := leaderelection.Config{
		Decider: store, LeaderID: "a", TermLength: time.Hour,
		OnElected: func(_ context.Context, v *leaderelection.TimeView) { views <- v },
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	end = func() { cancel(); <-campaign.Done() }
	t.Cleanup(end)
	return fence.Gate{View: <-views, Election: "orders"}, end
}
