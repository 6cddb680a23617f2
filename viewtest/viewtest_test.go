package viewtest_test

import (
	"fmt"
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
