// Hotstandby is an HTTP service of which one instance answers: the example of docs/request-router.md.
// The others pass requests on.
//
//	STORE=file:///tmp/hotstandby.json LISTEN=127.0.0.1:8081 go run ./examples/hotstandby
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

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/lehttp"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/deciders/open"
)

// The stores that STORE may name.
var stores = open.Stores{"file": open.With(file.Open), "nats": open.With(natskv.Open)}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", os.Getenv("LISTEN"))
	if err == nil {
		err = serve(ctx, listener)
	}
	if err != nil {
		slog.Error("the service ends", "err", err)
		os.Exit(1)
	}
}

// serve serves at an address that the other instances can reach.
func serve(ctx context.Context, listener net.Listener) error {
	address := listener.Addr().String()
	decider, err := stores.Open(ctx, os.Getenv("STORE"))
	if err != nil {
		return err
	}
	defer open.Close(decider)
	router, err := lehttp.Follow(leaderelection.WatchConfig{Decider: decider})
	if err != nil {
		return err
	}
	defer router.Close() // last: it finds the next leader while this instance ends
	elsewhere := router.Proxy(&lehttp.ProxyOptions{LeaderID: address})
	defer elsewhere.Close()
	campaign, err := leaderelection.Config{
		Decider:  decider,
		LeaderID: address,
		HostPort: []string{address}, // where the routers find this instance when it leads
		Logger:   slog.Default(),
	}.Start(ctx)
	if err != nil {
		return err
	}
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.URL.Path, "answered by", address, "with token", leaderelection.ViewFrom(r.Context()).ElectionNumber())
	})
	mux := http.NewServeMux()
	mux.Handle("/", lehttp.RequireLeader(campaign, &lehttp.RequireOptions{Otherwise: elsewhere})(app))
	mux.Handle("/election/", http.StripPrefix("/election", lehttp.Probes(campaign, nil)))
	return lehttp.Serve(ctx, campaign, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, listener, nil)
}
