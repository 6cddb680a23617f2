package stores

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// ConsulServer is one server of Consul: a process of its own, which keeps its data and its
// addresses when it is stopped and started again. One that has others serves when it has found
// them: see Await.
type ConsulServer struct {
	nested
	// Address is where it serves HTTP: host and port.
	Address string

	peer string // where the others reach it
}

// Consul starts one server by itself. Config is more of its configuration, as JSON, or is
// empty. To build it takes minutes: make consul does that before any test's time runs.
func Consul(t testing.TB, config string) *ConsulServer {
	t.Helper()
	Nightly(t, "it starts Consul")
	s := newConsul(t, config)
	s.Start(t)
	s.Await(t)
	return s
}

// ConsulCluster starts several servers, with more of their configuration, as JSON, or none, and
// returns when they have a leader that each of them knows.
func ConsulCluster(t testing.TB, servers int, config string) []*ConsulServer {
	t.Helper()
	Nightly(t, "it starts Consul")
	all := make([]*ConsulServer, servers)
	var gossip []string
	for i := range all {
		all[i] = newConsul(t, config)
		gossip = append(gossip, fmt.Sprintf("127.0.0.1:%d", FreePort(t)))
	}
	for i, s := range all {
		s.args = append(s.args, "-name", fmt.Sprint("s", i), "-serf", gossip[i], "-expect", fmt.Sprint(servers), "-join", strings.Join(gossip, ","))
		s.Start(t)
	}
	for _, s := range all {
		s.Await(t)
	}
	return all
}

func newConsul(t testing.TB, config string) *ConsulServer {
	t.Helper()
	s := &ConsulServer{Address: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), peer: fmt.Sprintf("127.0.0.1:%d", FreePort(t))}
	s.nested = nested{server: "consul", args: []string{"-data", t.TempDir(), "-http", s.Address, "-server", s.peer}}
	if config != "" {
		s.args = append(s.args, "-config", config)
	}
	return s
}

// Await returns when the server knows a leader that answers consistent reads.
func (s *ConsulServer) Await(t testing.TB) {
	t.Helper()
	s.serves(t, consulServes)
}

// consulServes asks for a key that is not there, and that nobody may read without a token where
// Consul asks for tokens. Then it serves when it has made the first ones.
func consulServes(ctx context.Context, addr string) error {
	_, err := get(ctx, "http://"+addr+"/v1/kv/no-such-key?consistent")
	if err != nil && (strings.HasPrefix(err.Error(), "404 ") || strings.HasPrefix(err.Error(), "403 ") && !strings.Contains(err.Error(), "ACL not found")) {
		return nil
	}
	if err == nil {
		err = errors.New("it has a key that nobody has made")
	}
	return err
}

// Leads reports whether this server leads the others, by what it says itself.
func (s *ConsulServer) Leads(t testing.TB) bool {
	t.Helper()
	leader, err := get(t.Context(), "http://"+s.Address+"/v1/status/leader")
	return err == nil && strings.Contains(leader, s.peer)
}

// Ask makes a request of Consul's API, with a token or none, and returns the answer's body.
func (s *ConsulServer) Ask(t testing.TB, method, path, token, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	answer, err := send(r)
	if err != nil {
		t.Fatalf("stores: asking Consul %s %s: %v", method, path, err)
	}
	return answer
}
