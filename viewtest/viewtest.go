// Package viewtest makes views and candidates for tests of code that takes a *leaderelection.TimeView
// or a leaderelection.Candidate. With it such code is tested without an election.
package viewtest

import (
	"context"
	"sync"
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

// Candidate is a leaderelection.Candidate whose state a test sets. Pass it to the code under test in
// place of a *leaderelection.Campaign. Nothing changes by itself, except that the view ends: so a test
// can also have the states that last only moments, such as a Leading candidate whose view is over. Its
// methods may be called by any number of goroutines at once.
type Candidate struct {
	clock clocks.Clock

	mu     sync.Mutex
	view   *View
	status leaderelection.Status
	leader leaderelection.RaceEntry
}

// NewCandidate returns a candidate that is Following. Its view is over and belongs to no leadership, and
// it knows no record. A nil clock means the system's.
func NewCandidate(clock clocks.Clock) *Candidate {
	return &Candidate{clock: clock, view: New(clock, leaderelection.NoElections)}
}

// Lead begins a leadership: View is a new view with the given token, which lasts until end, and Status is
// Leading. Earlier views stay as they are. Leader stays, too: see SetLeader.
func (c *Candidate) Lead(token leaderelection.ElectionNumber, end time.Time) {
	view := New(c.clock, token)
	view.Set(end)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view, c.status = view, leaderelection.Leading
}

// SetEnd moves the end of the current view, and leaves Status alone. SetEnd(time.Now()) ends it.
func (c *Candidate) SetEnd(end time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view.Set(end)
}

// SetStatus sets what Status returns, and leaves the view alone.
func (c *Candidate) SetStatus(s leaderelection.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status = s
}

// SetLeader sets the record that Leader returns.
func (c *Candidate) SetLeader(e leaderelection.RaceEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = e
}

// View returns the view of the newest leadership. It is never nil.
func (c *Candidate) View() *leaderelection.TimeView {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view.TimeView
}

// Status returns the status that was set last.
func (c *Candidate) Status() leaderelection.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Leader returns the record that was set last. Until then it is the zero RaceEntry.
func (c *Candidate) Leader() leaderelection.RaceEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}

// Ping returns nil at once, as a Campaign's does that is well. It makes the Candidate one for
// lehttp.Live and lehttp.Probes.
func (c *Candidate) Ping(context.Context) error { return nil }
