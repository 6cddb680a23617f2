/*
Package gocron lets github.com/go-co-op/gocron/v2 run its jobs on the leader of an
election only.

	campaign, err := config.Start(ctx)
	...
	scheduler, err := gocron.NewScheduler(
		gocron.WithDistributedElector(legocron.NewElector(campaign)))

The scheduler runs on every candidate, and asks before each run of a job whether this
candidate leads. So a new leader's first run comes when its own schedule says so. It does not
make up for runs that were missed.

# What it promises

A run begins only while this process's view is true: never on two candidates at once. gocron
neither stops a run nor asks again. So a job takes the view once, when it begins, asks it
before each act, and sends its fencing token along:

	view := campaign.View() // not again in this run: a later leadership has another view
	...
	if !view.ValueInFuture() {
		return errors.New("another candidate may have begun")
	}
	orders.Bill(ctx, view.ElectionNumber())

A leader that gives up leadership by choice begins no runs from the moment its ctx is
cancelled. If runs must end before the release, wait for them in OnOusting.

It is a module of its own, so that nobody who imports the election links gocron.

Experimental: the API of this package may change in any minor version, even after v1.
*/
package gocron

import (
	"context"
	"fmt"

	"github.com/go-co-op/gocron/v2"

	"github.com/c8e606e4/leaderelection"
)

// Elector is a gocron.Elector. It may be used by any number of schedulers and
// goroutines at once.
type Elector struct{ candidate leaderelection.Candidate }

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns the Elector of a campaign.
func NewElector(c leaderelection.Candidate) *Elector { return &Elector{c} }

// IsLeader returns nil while this process leads by its view and is not giving
// leadership up, else an error that wraps leaderelection.ErrNotLeading and names who leads, as far
// as is known. It asks nobody and does not wait, so it does not look at ctx.
func (e *Elector) IsLeader(context.Context) error {
	view := e.candidate.View()
	if e.candidate.Status() == leaderelection.Leading && view.ValueInFuture() {
		return nil
	}
	entry := e.candidate.Leader()
	if entry.Vacant() || entry.ElectionNumber == view.ElectionNumber() {
		return leaderelection.ErrNotLeading
	}
	return fmt.Errorf("%w: the newest record is %q's, with token %d", leaderelection.ErrNotLeading, entry.LeaderID, entry.ElectionNumber)
}
