//go:build ignore

// The module proxy has no github.com/vimeo/leaderelection, so this file is not built with
// the others. It was compiled by hand in a copy of that repository, at f38f9f1.
package fromvimeo

import (
	"context"
	"log"
	"time"

	"cloud.google.com/go/storage"
	"github.com/vimeo/leaderelection"
	"github.com/vimeo/leaderelection/entry"
	"github.com/vimeo/leaderelection/gcs"
)

// Before runs work whenever host leads, and tells route where the leader is.
func Before(ctx context.Context, client *storage.Client, host string, hostPorts []string,
	work func(context.Context, *leaderelection.TimeView), route func(hostPorts []string)) error {
	return leaderelection.Config{
		Decider:       gcs.NewDecider(client, "my-bucket", "report"),
		LeaderID:      host,
		HostPort:      hostPorts,
		TermLength:    15 * time.Second,
		MaxClockSkew:  time.Second,
		OnElected:     work,
		OnOusting:     func(context.Context) { log.Print("no longer the leader") },
		LeaderChanged: func(_ context.Context, e entry.RaceEntry) { route(e.HostPort) },
	}.Acquire(ctx)
}
