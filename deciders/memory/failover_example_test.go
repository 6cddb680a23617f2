//go:build go1.25

package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// counter is a small job: whoever leads counts up once a second.
type counter struct {
	elected chan string // who was elected
	counted map[leaderelection.ElectionNumber]int
}

// lead runs while its candidate leads. It asks the view before each act, and
// keeps what each leadership did apart by the fencing token.
func (c *counter) lead(id string) func(context.Context, *leaderelection.TimeView) {
	return func(ctx context.Context, view *leaderelection.TimeView) {
		c.elected <- id
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-second.C:
				if view.ValueInFuture() {
					c.counted[view.ElectionNumber()]++
				}
			}
		}
	}
}

// testFailOver cuts the leader off from the store for ever, and sees to it that
// the other takes over in time and that the job was in one hand at any time. In
// the bubble this takes half a minute, and of the test's own time a millisecond.
func testFailOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := &counter{elected: make(chan string), counted: map[leaderelection.ElectionNumber]int{}}
		election := memory.NewDecider()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		start := func(id string) (*memory.Decider, *leaderelection.Campaign) {
			store := election.Handle() // its own way to the store, to be cut
			campaign, err := leaderelection.Config{
				Decider:    store,
				LeaderID:   id,
				TermLength: 15 * time.Second,
				OnElected:  job.lead(id),
			}.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return store, campaign
		}
		storeOfA, a := start("a")
		if id := <-job.elected; id != "a" {
			t.Errorf("%s is elected first, want a", id)
		}
		number := a.View().ElectionNumber()
		_, b := start("b")

		cut := time.Now()
		storeOfA.Inject(memory.LoseRequests())
		if id := <-job.elected; id != "b" {
			t.Errorf("%s is elected next, want b", id)
		}
		if waited := time.Since(cut); waited > 17*time.Second { // the term, the skew, and a little
			t.Errorf("the fail-over took %v", waited)
		}
		if a.View().ValueInFuture() || !b.View().ValueInFuture() {
			t.Errorf("may act: a %v, b %v; want b alone", a.View().ValueInFuture(), b.View().ValueInFuture())
		}

		time.Sleep(10*time.Second + time.Millisecond) // in virtual time
		cancel()
		for _, campaign := range []*leaderelection.Campaign{a, b} {
			if err := campaign.Wait(); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if first, second := job.counted[number], job.counted[number+1]; first > 14 || second != 10 {
			t.Errorf("counted %d times in the first leadership, %d in the second; want at most 14, and 10", first, second)
		}
		if e := election.Entry(); !e.Vacant() || e.ElectionNumber != number+1 {
			t.Errorf("b has stopped, and did not release: %+v", e)
		}
	})
}

// A test of a job's fail-over, in virtual time.
func Example_failOver() {
	var t *testing.T // what TestFailOver(t *testing.T) is given
	testFailOver(t)
}
