// Package viewtest makes views for tests of code that takes a *leaderelection.TimeView.
package viewtest

import (
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/route/viewhook"
)

// View is a view whose end a test sets. Pass its TimeView to the code under test. It is over until
// Set moves it. Its methods may be called by any number of goroutines at once.
type View struct {
	*leaderelection.TimeView
	set func(time.Time)
}

// New returns a view of the leadership that has the given fencing token. If the token is
// leaderelection.NoElections, the view belongs to no leadership. A nil clock means the system's.
func New(clock clocks.Clock, token leaderelection.ElectionNumber) *View {
	if clock == nil {
		clock = clocks.System()
	}
	view, set := viewhook.Make(clock, uint64(token))
	return &View{view.(*leaderelection.TimeView), set}
}

// Set moves the end of the view to end, in either direction, even if the view was over. Use it to
// start and to end a leadership in a test. A campaign's view cannot be set.
func (v *View) Set(end time.Time) { v.set(end) }
