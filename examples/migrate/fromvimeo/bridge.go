//go:build ignore

// The module proxy has no github.com/vimeo/leaderelection, so this file is not built with the others. It was
// compiled by hand in a copy of that repository, at f38f9f1, and run against both libraries' stores in memory.
package fromvimeo

import (
	"context"
	"log"
	"time"

	vimeo "github.com/vimeo/leaderelection"

	"github.com/c8e606e4/leaderelection"
)

// Bridge runs work when host leads the new election and the old one.
func Bridge(ctx context.Context, decider leaderelection.RaceDecider, old vimeo.Config,
	work func(context.Context, *leaderelection.TimeView)) error {
	return leaderelection.Config{
		Decider:    decider,
		LeaderID:   old.LeaderID,
		HostPort:   old.HostPort,
		TermLength: 15 * time.Second,
		OnElected: func(leading context.Context, view *leaderelection.TimeView) {
			old.OnElected = func(ctx context.Context, _ *vimeo.TimeView) { work(ctx, view) }
			for leading.Err() == nil {
				err := old.Acquire(leading) // it ends at the first error of the store
				log.Print("the old election: ", err)
				select {
				case <-leading.Done():
				case <-time.After(time.Second):
				}
			}
		},
	}.Acquire(ctx)
}
