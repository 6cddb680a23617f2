// Metrics shows what Prometheus is told of an election: by leprom, and by leotel through
// OpenTelemetry.
//
//	go run ./examples/metrics
//
// It prints the address to curl. Two candidates lead by turns, since the leader is
// asked to step down every few seconds. Ada's metrics are leotel's and bob's are leprom's,
// by the same names: a program needs one of the two. Look at leaderelection_is_leader, at
// leaderelection_transitions_total and at leaderelection_leaderless_time. Ctrl-C
// ends it.
//
// With a Prometheus server, scrape that address, and import dashboard.json from
// the leotel directory into Grafana; alerts.yaml is beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/leotel"
	"github.com/c8e606e4/leaderelection/leprom"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to serve /metrics")
	every := flag.Duration("every", 5*time.Second, "how often the leader is asked to step down")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := show(ctx, os.Stdout, *listen, *every); err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}

// show runs two candidates and serves their metrics until ctx ends.
func show(ctx context.Context, out io.Writer, listen string, every time.Duration) (err error) {
	// What any program with OpenTelemetry and Prometheus has: a registry, an
	// exporter that fills it, a provider of meters, and a handler.
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	defer func() { err = errors.Join(err, provider.Shutdown(context.WithoutCancel(ctx))) }()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	defer server.Close()
	go func() { _ = server.Serve(listener) }()
	fmt.Fprintf(out, "curl -s http://%s/metrics | grep ^leaderelection\n", listener.Addr())

	// Or without OpenTelemetry: a collector, for all elections of a program.
	metrics := leprom.New(nil)
	registry.MustRegister(metrics)

	election := memory.NewDecider() // a real program uses a store that all can reach
	ada, bob := config("ada", election.Handle(), out), config("bob", election.Handle(), out)
	telemetry, err := leotel.New(&leotel.Options{MeterProvider: provider}).Candidate("example", ada)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, telemetry.Close()) }()
	ada.Trace = telemetry.Trace() // all that is needed of the candidate
	measured, err := metrics.Candidate("example", bob)
	if err != nil {
		return err
	}
	defer measured.Close()
	bob.Trace = measured.Trace()
	for _, c := range []leaderelection.Config{ada, bob} {
		end, err := stand(ctx, c)
		if err != nil {
			return err
		}
		defer end()
	}
	return unrest(ctx, election, every)
}

// config is a candidate's.
func config(name string, store leaderelection.RaceDecider, out io.Writer) leaderelection.Config {
	return leaderelection.Config{
		Decider:      store,
		LeaderID:     name,
		TermLength:   2 * time.Second, // short, so that there is something to see; the default is 15 s
		MaxClockSkew: 100 * time.Millisecond,
		OnElected: func(_ context.Context, view *leaderelection.TimeView) {
			fmt.Fprintf(out, "%s leads with token %d\n", name, view.ElectionNumber())
		},
	}
}

// stand starts a candidate, and returns what ends it.
func stand(ctx context.Context, c leaderelection.Config) (end func(), err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	campaign, err := c.Start(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	return func() {
		cancel()
		<-campaign.Done()
	}, nil
}

// unrest asks the leader to step down again and again until ctx ends.
func unrest(ctx context.Context, election leaderelection.RaceDecider, every time.Duration) error {
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
		if err := leaderelection.StepDown(ctx, election, false); err != nil && ctx.Err() == nil && !errors.Is(err, leaderelection.ErrNoLeader) {
			return err
		}
	}
}
