// The demo shows an election at work, in about half a minute and with nothing
// installed but Go:
//
//	go run ./examples/demo
//
// It starts a NATS server within itself and four candidates as processes of their
// own. The leader does what only a leader may: every 200 ms it adds a line to a
// ledger that all of them share. Then things go wrong. The leader is killed; the
// next one is frozen for longer than its term, and thawed; the third is asked to
// hand over. At the end the ledger is checked for what must never be in it, an
// act of one leader after the first of the next.
//
// Where to read on: candidate.go is what a program of yours would do, script.go
// what happens to it, ledger.go what is checked.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/natskv"
)

// The election. The term is short so that there is something to see; the default
// of 15 s is right for most.
const (
	term     = 3 * time.Second
	skew     = 200 * time.Millisecond
	beat     = 200 * time.Millisecond // between two acts of a leader
	bucket   = "elections"
	key      = "demo"
	ledger   = "ledger.txt"
	patience = 5 * term // for a leader to come: far more than it takes
)

func main() {
	if name := os.Getenv(envName); name != "" {
		os.Exit(candidate(name))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx, os.Stdout)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo runs the whole of it, and leaves nothing behind.
func demo(ctx context.Context, out io.Writer) (err error) {
	begun := time.Now()
	dir, err := os.MkdirTemp("", "leaderelection-demo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store, err := startStore(ctx, dir)
	if err != nil {
		return err
	}
	defer store.stop()

	s := &stage{screen: newScreen(out), store: store, ledger: filepath.Join(dir, ledger), news: make(chan entry, 1000), died: make(chan error, len(names))}
	defer s.clear()
	s.screen.say("term %v, clocks may differ by %v, %d candidates, election %s", term, skew, len(names), store.url+"/"+bucket+"/"+key)
	if err := s.play(ctx); err != nil {
		s.screen.wipe()
		return err
	}
	return s.verdict(out, time.Since(begun))
}

// store is a NATS server within this process.
type store struct {
	server *server.Server
	nc     *nats.Conn
	url    string
	// decider is the operator's: who asks for a hand-over needs no candidate.
	decider *natskv.Decider
}

// startStore starts a server that keeps its data in dir, and makes the bucket.
func startStore(ctx context.Context, dir string) (*store, error) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		return nil, fmt.Errorf("starting a NATS server: %w", err)
	}
	s := &store{server: srv}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		s.stop()
		return nil, errors.New("the NATS server is not ready after 10 s")
	}
	s.url = srv.ClientURL()
	js, err := connect(s.url)
	if err != nil {
		s.stop()
		return nil, err
	}
	s.nc = js.Conn()
	s.decider = natskv.NewDecider(js, bucket, key, &natskv.Options{Create: &jetstream.KeyValueConfig{Replicas: 1}})
	if _, err := s.decider.ReadCurrent(ctx); err != nil { // which makes the bucket
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *store) stop() {
	if s.nc != nil {
		s.nc.Close()
	}
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// connect returns a client that comes back whatever happens to the server.
func connect(url string) (jetstream.JetStream, error) {
	nc, err := nats.Connect(url, natskv.ConnectOptions()...)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", url, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return js, nil
}
