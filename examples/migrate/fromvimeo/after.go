// Package fromvimeo is the code of the guide from github.com/vimeo/leaderelection.
package fromvimeo

import (
	"context"
	"log"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// After runs work whenever host leads, and tells route where the leader is.
func After(ctx context.Context, decider leaderelection.RaceDecider, host string, hostPorts []string,
	work func(context.Context, *leaderelection.TimeView), route func(hostPorts []string)) error {
	return leaderelection.Config{
		Decider:    decider,
		LeaderID:   host,
		HostPort:   hostPorts,
		TermLength: 15 * time.Second,
		OnElected:  work,
		OnOusting:  func(context.Context) { log.Print("no longer the leader") },
		LeaderChanged: func(_ context.Context, e leaderelection.RaceEntry) {
			if e.Vacant() {
				route(nil) // nobody leads
				return
			}
			route(e.HostPort)
		},
	}.Acquire(ctx)
}
