package viewtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// Code that is given a view can be tested without an election.
func ExampleNew() {
	act := func(view *leaderelection.TimeView) string {
		if !view.ValueInFuture() {
			return "refused"
		}
		return "done"
	}
	view := viewtest.New(nil, 7) // 7: the fencing token
	fmt.Println(act(view.TimeView))
	view.Set(time.Now().Add(time.Minute))
	fmt.Println(act(view.TimeView))
	// Output:
	// refused
	// done
}

// So can code that asks a campaign whether it leads, in the states of which an election has only moments.
func ExampleNewCandidate() {
	act := func(c leaderelection.Candidate) string {
		if c.Status() != leaderelection.Leading || !c.View().ValueInFuture() {
			return "refused"
		}
		return fmt.Sprint("done with token ", c.View().ElectionNumber())
	}
	c := viewtest.NewCandidate(nil)
	fmt.Println("following:", act(c))
	c.Lead(7, time.Now().Add(time.Minute))
	fmt.Println("leading:", act(c))
	c.SetStatus(leaderelection.Draining)
	fmt.Println("draining:", act(c))
	c.Lead(8, time.Now().Add(time.Minute))
	c.SetEnd(time.Now())
	fmt.Println("leading, and the view is over:", act(c))
	// Output:
	// following: refused
	// leading: done with token 7
	// draining: refused
	// leading, and the view is over: refused
}

// Each leadership has a view of its own, which goes on for those that have it.
func TestCandidate(t *testing.T) {
	c := viewtest.NewCandidate(nil)
	if v, e := c.View(), c.Leader(); c.Status() != leaderelection.Following || v.ValueInFuture() || v.ElectionNumber() != leaderelection.NoElections || e.ElectionNumber != leaderelection.NoElections {
		t.Errorf("a new one: %v, %v, %+v", c.Status(), v.Get(), e)
	}
	c.Lead(7, time.Now().Add(time.Minute))
	first := c.View()
	if c.View() != first {
		t.Error("another view in one leadership")
	}
	c.SetLeader(leaderelection.RaceEntry{LeaderID: "b"})
	c.Lead(8, time.Now().Add(time.Minute))
	c.SetEnd(time.Now())
	if second := c.View(); !first.ValueInFuture() || second.ValueInFuture() || second.ElectionNumber() != 8 || c.Leader().LeaderID != "b" || c.Ping(t.Context()) != nil {
		t.Errorf("the first view lasts: %v; the second: %v, token %d", first.ValueInFuture(), second.ValueInFuture(), second.ElectionNumber())
	}
}
