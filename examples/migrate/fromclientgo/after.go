package fromclientgo

import (
	"context"
	"log"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// After runs work in the pod that leads, as often as it leads.
func After(ctx context.Context, decider leaderelection.RaceDecider, pod string, work func(context.Context, *leaderelection.TimeView)) error {
	return leaderelection.Config{
		Decider:    decider,
		LeaderID:   pod,
		TermLength: 15 * time.Second,
		OnElected:  work,
		LeaderChanged: func(_ context.Context, e leaderelection.RaceEntry) {
			log.Printf("leader: %q", e.LeaderID) // empty: nobody leads
		},
	}.Acquire(ctx)
}

// AfterOnce runs work when the pod leads, and returns when work has returned and the
// lease is released. The caller may exit then.
func AfterOnce(ctx context.Context, decider leaderelection.RaceDecider, pod string, work func(context.Context, *leaderelection.TimeView) error) error {
	return leaderelection.Config{
		Decider:    decider,
		LeaderID:   pod,
		TermLength: 15 * time.Second,
	}.Run(ctx, work)
}
