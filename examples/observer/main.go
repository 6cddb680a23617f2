// Observer shows WatchConfig.Watch: it follows an election without campaigning it,
// and says who leads, since when, and when a leader's term ran out unextended.
//
//	go run ./examples/observer nats://127.0.0.1:4222/elections/billing
//
// The demo prints the URL of its own election: run it in another terminal.
package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: observer nats://host:port/bucket/key")
		os.Exit(2)
	}
	if err := observe(ctx, os.Args[1], os.Stdout); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// observe prints what happens to an election until ctx ends.
func observe(ctx context.Context, place string, out io.Writer) error {
	u, err := url.Parse(place)
	if err != nil {
		return err
	}
	decider, err := natskv.Open(ctx, u)
	if err != nil {
		return err
	}
	defer decider.Close()

	// Calls come one at a time, so what they share needs no lock.
	var last leaderelection.RaceEntry
	return leaderelection.WatchConfig{
		Decider:      decider,
		MaxClockSkew: 200 * time.Millisecond,
		Lapsed: func(_ context.Context, e leaderelection.RaceEntry) {
			fmt.Fprintf(out, "%s has not extended its term: nobody leads\n", e.LeaderID)
		},
	}.Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) {
		switch {
		case e.Vacant():
			fmt.Fprintf(out, "election %d was given up: nobody leads\n", e.ElectionNumber)
		case e.ElectionNumber != last.ElectionNumber:
			fmt.Fprintf(out, "%s leads with election %d until %s, if not extended\n", e.LeaderID, e.ElectionNumber, e.TermExpiry.Local().Format(time.TimeOnly))
		case e.Successor != "" && e.Successor != last.Successor:
			fmt.Fprintf(out, "%s is asked to hand over to %q\n", e.LeaderID, e.Successor)
		}
		last = e
	})
}
