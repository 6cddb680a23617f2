// Nightly is a job that is started on every machine, and done by one of them: the example of
// docs/batch-job.md.
//
//	STORE=file:///tmp/nightly.json go run ./examples/nightly
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

// The stores that STORE may name.
var stores = open.Stores{"file": open.With(file.Open), "nats": open.With(natskv.Open)}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx)
	switch {
	case errors.Is(err, leaderelection.ErrNotElected):
		slog.Info("nothing to do", "why", err)
	case err != nil:
		slog.Error("the job failed", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	decider, err := stores.Open(ctx, os.Getenv("STORE"))
	if err != nil {
		return err
	}
	defer open.Close(decider)
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	return leaderelection.Config{
		Decider:  decider,
		LeaderID: fmt.Sprint(host, "-", os.Getpid()),
	}.Once(ctx, leaderelection.OnceOptions{
		Hold: 12 * time.Hour, // the job is due once a day
		Wait: 5 * time.Second,
	}, importAll)
}

// importAll is the job. When ctx has ended it begins nothing more; the view, which may be true for
// longer, says whether it still may act.
func importAll(ctx context.Context, view *leaderelection.TimeView) error {
	for _, part := range []string{"customers", "orders", "invoices"} {
		if ctx.Err() != nil || !view.ValueInFuture() { // before each act
			return context.Cause(ctx)
		}
		slog.Info("importing", "part", part, "token", view.ElectionNumber())
	}
	return nil
}
