// Command upgradetest is a candidate that the test beside it builds twice: as it is, and as a
// later version of the library might be, whose record has one more field. It takes the
// election's file and an id, says on stdout what happens, and leaves the election when its
// stdin ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
)

var errStdin = errors.New("stdin has ended")

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: upgradetest FILE ID")
		os.Exit(2)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel(errStdin)
	}()
	err := leaderelection.Config{
		Decider:      file.NewDecider(os.Args[1], nil),
		LeaderID:     os.Args[2],
		TermLength:   3 * time.Second,
		MaxClockSkew: 50 * time.Millisecond, // all are on one machine
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			fmt.Println("leads", view.ElectionNumber())
			<-ctx.Done()
		},
		LeaderChanged: func(_ context.Context, e leaderelection.RaceEntry) { fmt.Printf("sees %q\n", e.LeaderID) },
		Logger:        slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}.Acquire(ctx)
	fmt.Println("ended:", err)
	if !errors.Is(err, errStdin) {
		os.Exit(1)
	}
}
