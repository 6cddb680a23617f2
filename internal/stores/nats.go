package stores

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// NATSServer is a nats-server with JetStream in a process of its own, which keeps its data
// and its address when it is stopped and started again.
type NATSServer struct {
	*Process
	// Addr is where it serves clients: host and port.
	Addr string

	config string
}

// NATS starts a nats-server, without a cluster and without accounts.
func NATS(t testing.TB) *NATSServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "nats") // t.TempDir fails if the server writes a last file meanwhile
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &NATSServer{Addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), config: filepath.Join(dir, "config")}
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q }\n", s.Addr, dir)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
	return s
}

// Start starts a server that was stopped.
func (s *NATSServer) Start(t testing.TB) {
	t.Helper()
	s.Process = Server(t, "nats", s.config)
}

// Stop kills the server; Start starts it again. It is a method of its own, so that
// the method value s.Stop stops the process that runs when it is called.
func (s *NATSServer) Stop() { s.Process.Stop() }

// URL is the server's, as clients take it.
func (s *NATSServer) URL() string { return "nats://" + s.Addr }
