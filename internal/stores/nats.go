package stores

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// NATSServer is a nats-server with JetStream in a process of its own, which keeps its data
// and its address when it is stopped and started again.
type NATSServer struct {
	*Process
	// Name is the server's name, and Addr where it serves clients: host and port.
	Name, Addr string

	config string
}

// NATS starts a nats-server, without a cluster and without accounts.
func NATS(t testing.TB) *NATSServer {
	t.Helper()
	return NATSCluster(t, 1)[0]
}

// NATSCluster starts n servers that replicate JetStream among themselves, once they have found one another.
func NATSCluster(t testing.TB, n int) (all []*NATSServer) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nats") // t.TempDir fails if the server writes a last file meanwhile
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var members []string
	for range n {
		members = append(members, fmt.Sprintf("127.0.0.1:%d", FreePort(t)))
	}
	for i, member := range members {
		s := &NATSServer{Name: fmt.Sprintf("n%d", i+1), Addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t))}
		s.config = filepath.Join(dir, s.Name+".conf")
		text := fmt.Sprintf("server_name: %s\nlisten: %q\njetstream { store_dir: %q }\n", s.Name, s.Addr, filepath.Join(dir, s.Name))
		if n > 1 {
			text += fmt.Sprintf("cluster { name: test, listen: %q, routes: [\"nats://%s\"] }\n", member, strings.Join(members, `", "nats://`))
		}
		if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Start(t)
		all = append(all, s)
	}
	return all
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
