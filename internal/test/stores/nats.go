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
	nested
	// Name is the server's name, and Addr where it serves clients: host and port.
	Name, Addr string
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
		config := filepath.Join(dir, s.Name+".conf")
		s.nested = nested{server: "nats", args: []string{config}}
		text := fmt.Sprintf("server_name: %s\nlisten: %q\njetstream { store_dir: %q }\n", s.Name, s.Addr, filepath.Join(dir, s.Name))
		if n > 1 {
			text += fmt.Sprintf("cluster { name: test, listen: %q, routes: [\"nats://%s\"] }\n", member, strings.Join(members, `", "nats://`))
		}
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Start(t)
		all = append(all, s)
	}
	return all
}

// URL is the server's, as clients take it.
func (s *NATSServer) URL() string { return "nats://" + s.Addr }
