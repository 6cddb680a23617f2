// Hotstandby is an HTTP service of which any instance may be asked, and the leader answers: the
// example of docs/request-router.md.
//
//	STORE=file:///tmp/hotstandby.json LISTEN=127.0.0.1:8081 go run ./examples/hotstandby
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// The stores that STORE may name.
var stores = open.Stores{"file": open.With(file.Open), "nats": open.With(natskv.Open)}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Getenv("LISTEN")); err != nil {
		slog.Error("the service ends", "err", err)
		os.Exit(1)
	}
}

// serve serves at an address that the other instances can reach.
func serve(ctx context.Context, address string) error {
	decider, err := stores.Open(ctx, os.Getenv("STORE"))
	if err != nil {
		return err
	}
	defer open.Close(decider)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	var working sync.RWMutex // held for reading by each request that is worked on here
	config := leaderelection.Config{
		Decider:  decider,
		LeaderID: address,
		HostPort: []string{address}, // where the router finds this instance when it leads
		Logger:   slog.Default(),
		// The lease is kept until this returns, so that requests in progress are finished under it.
		OnOusting: func(context.Context) { working.Lock(); defer working.Unlock() },
	}
	router := lehttp.NewRouter(config)
	config.Trace = router.Trace()
	campaign, err := config.Start(ctx)
	if err != nil {
		return err
	}
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		working.RLock()
		defer working.RUnlock()
		fmt.Fprintln(w, r.URL.Path, "answered by", address, "with token", leaderelection.ViewFrom(r.Context()).ElectionNumber())
	})
	elsewhere := router.Proxy(&lehttp.ProxyOptions{LeaderID: address, Wait: 10 * time.Second})
	defer elsewhere.Close()
	mux := http.NewServeMux()
	mux.Handle("/", lehttp.RequireLeader(campaign, &lehttp.RequireOptions{Otherwise: elsewhere})(app))
	mux.Handle("/election/", http.StripPrefix("/election", lehttp.Probes(campaign, nil)))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error)
	go func() {
		<-campaign.Done() // released: what still comes goes to the next leader
		ended <- server.Shutdown(context.WithoutCancel(ctx))
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}
