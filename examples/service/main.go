// Service is a program of which one instance works, and the others stand by: the example of
// docs/go-service.md.
//
//	STORE=file:///tmp/service.json go run ./examples/service
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/adapters/leprom"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

// The stores that STORE may name.
var stores = open.Stores{"file": open.With(file.Open), "nats": open.With(natskv.Open)}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("the service ends", "err", err)
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
	config := leaderelection.Config{
		Decider:   decider,
		LeaderID:  fmt.Sprint(host, "-", os.Getpid()), // each instance has its own
		OnElected: work,
		Logger:    slog.Default(),
	}
	metrics := leprom.New(nil)
	prometheus.MustRegister(metrics)
	measured, err := metrics.Candidate("service", config)
	if err != nil {
		return err
	}
	config.Trace = measured.Trace()
	listener, err := net.Listen("tcp", os.Getenv("LISTEN"))
	if err != nil {
		return err
	}
	campaign, err := config.Start(ctx)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	mux.Handle("/election/", http.StripPrefix("/election", lehttp.Probes(campaign, nil)))
	return lehttp.Serve(ctx, campaign, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, listener, nil)
}

// work does what only the leader may do. It is called for each leadership of this instance. When
// the leadership ends the lease is kept until it returns, so nothing that it has started may go
// on after that.
func work(ctx context.Context, view *leaderelection.TimeView) {
	beat := time.NewTicker(time.Second)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			slog.Info("wound down", "cause", context.Cause(ctx))
			return
		case <-beat.C:
			if view.ValueInFuture() { // before each act
				slog.Info("act", "token", view.ElectionNumber())
			}
		}
	}
}
