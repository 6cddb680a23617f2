package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/natskv"
)

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
