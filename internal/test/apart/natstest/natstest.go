// Package natstest starts NATS servers in the test's process. Package stores starts them as processes.
package natstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// Server is a nats-server with JetStream in the test's process.
type Server struct {
	*server.Server
	opts *server.Options
}

// Start starts a server whose JetStream is kept on disk. Change may alter its
// options.
func Start(t testing.TB, change ...func(*server.Options)) *Server {
	t.Helper()
	o := options()
	o.Port, o.StoreDir = stores.FreePort(t), storeDir(t) // where the next Start listens, too
	for _, c := range change {
		c(o)
	}
	s := &Server{opts: o}
	t.Cleanup(s.Stop)
	s.Start(t)
	return s
}

// storeDir is a directory for a store. It is not the test's own TempDir, which
// fails the test where a server writes a last file while that is removed.
func storeDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nats")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func options() *server.Options {
	return &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, NoLog: true, NoSigs: true}
}

// Start starts the server, again where it was stopped: with the same port and
// the same data.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	srv, err := server.NewServer(s.opts.Clone())
	if err != nil {
		t.Fatalf("nats-server: %v", err)
	}
	s.Server = srv
	go srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		t.Fatal("nats-server: not ready")
	}
}

// Stop stops the server and waits until it is gone. Nothing is flushed that was
// not on disk already.
func (s *Server) Stop() {
	if s.Server != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// Connect returns a client that reconnects quickly and for ever, closed when the
// test ends.
func (s *Server) Connect(t testing.TB, o ...nats.Option) *nats.Conn {
	t.Helper()
	return connect(t, s.ClientURL(), o...)
}

func connect(t testing.TB, url string, o ...nats.Option) *nats.Conn {
	t.Helper()
	o = append([]nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectWait(20 * time.Millisecond),
		nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default one prints
	}, o...)
	nc, err := nats.Connect(url, o...)
	if err != nil {
		t.Fatalf("connecting to %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// JetStream is Connect's client for JetStream.
func (s *Server) JetStream(t testing.TB, o ...nats.Option) jetstream.JetStream {
	t.Helper()
	return JetStream(t, s.ClientURL(), o...)
}

// JetStream is JetStream of a client of the servers that url names, with commas between them.
func JetStream(t testing.TB, url string, o ...nats.Option) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(connect(t, url, o...))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Servers is some servers that replicate JetStream among themselves.
type Servers []*Server

// Cluster starts n servers, and returns when they have elected a leader and
// can make a bucket that is replicated to all of them.
func Cluster(t testing.TB, n int) Servers {
	t.Helper()
	ports := freePorts(t, n)
	var routes string
	for i, p := range ports {
		if i > 0 {
			routes += ","
		}
		routes += fmt.Sprintf("nats://127.0.0.1:%d", p)
	}
	dir := storeDir(t)
	var c Servers
	for i, p := range ports {
		o := options()
		o.Port, o.ServerName = stores.FreePort(t), "n"+strconv.Itoa(i+1)
		o.StoreDir = filepath.Join(dir, o.ServerName)
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: p}
		o.Routes = server.RoutesFromStr(routes)
		s := &Server{opts: o}
		t.Cleanup(s.Stop)
		s.Start(t)
		c = append(c, s)
	}
	Ready(t, c.JetStream(t), n)
	return c
}

// URL names all servers.
func (c Servers) URL() string {
	var url string
	for i, s := range c {
		if i > 0 {
			url += ","
		}
		url += s.ClientURL()
	}
	return url
}

// JetStream returns a client that knows all servers.
func (c Servers) JetStream(t testing.TB, o ...nats.Option) jetstream.JetStream {
	t.Helper()
	return JetStream(t, c.URL(), o...)
}

// Named returns the server of that name, as in ClusterInfo.Leader.
func (c Servers) Named(t testing.TB, name string) *Server {
	t.Helper()
	for _, s := range c {
		if s.Name() == name {
			return s
		}
	}
	t.Fatalf("no server is called %q", name)
	return nil
}

// freePorts returns n free ports, all different.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		ports = append(ports, stores.FreePort(t))
	}
	return ports
}

// await calls f until it returns nil, and fails the test with its last error
// where that has not happened within patience.
func await(t testing.TB, what string, patience time.Duration, f func() error) {
	t.Helper()
	deadline := time.After(patience)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-again.C: // a server's own clock cannot be waited for otherwise
		case <-deadline:
			t.Fatalf("natstest: %s: not within %v: %v", what, patience, err)
		}
	}
}

// Ready waits until a bucket can be made that is replicated to n servers.
func Ready(t testing.TB, js jetstream.JetStream, n int) {
	t.Helper()
	kv := jetstream.KeyValueConfig{Bucket: "ready", Replicas: n}
	await(t, "JetStream", time.Minute, func() error {
		_, err := js.CreateKeyValue(t.Context(), kv)
		return err
	})
	if err := js.DeleteKeyValue(t.Context(), kv.Bucket); err != nil {
		t.Fatalf("natstest: %v", err)
	}
}
