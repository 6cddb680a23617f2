//go:build go1.25

package memory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// testFailOver cuts the leader off from the store for ever, and sees to it that the other takes over in
// time. In the bubble this takes half a minute, and of the test's own time a millisecond.
func testFailOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		election, elected := memory.NewDecider(), make(chan string)
		start := func(id string) (*memory.Decider, *leaderelection.Campaign) {
			store := election.Handle() // its own way to the store, to be cut
			campaign, err := leaderelection.Config{
				Decider:    store,
				LeaderID:   id,
				TermLength: 15 * time.Second,
				OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
					elected <- id
					<-ctx.Done()
				},
			}.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = campaign.Wait() })
			return store, campaign
		}
		storeOfA, a := start("a")
		if id := <-elected; id != "a" {
			t.Errorf("%s is elected first, want a", id)
		}
		_, b := start("b")

		cut := time.Now()
		storeOfA.Inject(memory.LoseRequests())
		if id := <-elected; id != "b" {
			t.Errorf("%s is elected next, want b", id)
		}
		if waited := time.Since(cut); waited > 17*time.Second { // the term, the skew, and a little
			t.Errorf("the fail-over took %v", waited)
		}
		if a.View().ValueInFuture() || !b.View().ValueInFuture() {
			t.Errorf("may act: a %v, b %v; want b alone", a.View().ValueInFuture(), b.View().ValueInFuture())
		}
	})
}

// A test of a fail-over, in virtual time.
func Example_failOver() {
	var t *testing.T // what TestFailOver(t *testing.T) is given
	testFailOver(t)
}
