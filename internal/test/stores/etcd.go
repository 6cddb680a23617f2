package stores

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// EtcdMember is one member of an etcd cluster: a process of its own, which keeps
// its data and its address when it is stopped and started again. One that has
// others serves when it has found them: see Await.
type EtcdMember struct {
	nested
	// Endpoint is where it serves clients: host and port.
	Endpoint string
}

// Etcd starts etcd, a cluster of one member, with the arguments that
// internal/test/stores/servers/etcd takes, for instance for TLS. It does not wait for the disk,
// which other tests may keep busy for a second, unless "-fsync" is among them.
func Etcd(t testing.TB, args ...string) *EtcdMember {
	t.Helper()
	m := newEtcd(t, args...)
	m.Start(t)
	return m
}

func newEtcd(t testing.TB, args ...string) *EtcdMember {
	endpoint := fmt.Sprintf("127.0.0.1:%d", FreePort(t))
	return &EtcdMember{nested{server: "etcd", args: append([]string{"-data", t.TempDir(), "-client", endpoint}, args...)}, endpoint}
}

// EtcdCluster starts an etcd cluster of several members, and returns when all of
// them serve.
func EtcdCluster(t testing.TB, members int) []*EtcdMember {
	t.Helper()
	Nightly(t, "it starts a cluster")
	var cluster []string
	ms := make([]*EtcdMember, members)
	for i := range ms {
		name, peer := fmt.Sprint("m", i), fmt.Sprintf("127.0.0.1:%d", FreePort(t))
		cluster = append(cluster, name+"=http://"+peer)
		ms[i] = newEtcd(t, "-name", name, "-peer", peer)
	}
	for _, m := range ms {
		m.args = append(m.args, "-cluster", strings.Join(cluster, ","))
		m.Start(t)
	}
	for _, m := range ms {
		m.Await(t)
	}
	return ms
}

// Await returns when the member says that it is healthy: it is served by a raft
// leader. It is for members without TLS.
func (m *EtcdMember) Await(t testing.TB) {
	t.Helper()
	m.serves(t, etcdHealthy)
}

func etcdHealthy(ctx context.Context, addr string) error {
	body, err := get(ctx, "http://"+addr+"/health")
	if err == nil && !strings.Contains(body, `"health":"true"`) {
		return errors.New(body)
	}
	return err
}

// Metrics returns what the member tells Prometheus.
func (m *EtcdMember) Metrics(t testing.TB) string {
	t.Helper()
	body, err := get(t.Context(), "http://"+m.Endpoint+"/metrics")
	if err != nil {
		t.Fatalf("stores: etcd's metrics: %v", err)
	}
	return body
}

// get returns what a server answers to an HTTP GET, and keeps no connection.
func get(ctx context.Context, url string) (string, error) {
	return ask(ctx, http.MethodGet, url, "")
}

func ask(ctx context.Context, method, url, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	return send(r)
}

// send sends a request by a connection of its own, and returns the body of an answer that
// is 200.
func send(r *http.Request) (string, error) {
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	answer, err := tr.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, got)
	}
	return string(got), err
}

// Requests returns how many messages clients have sent to the member so far, in
// single calls and on streams: whatever it was asked.
func (m *EtcdMember) Requests(t testing.TB) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(m.Metrics(t)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(name, "grpc_server_msg_received_total{") {
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("stores: etcd's metric %s: %v", line, err)
			}
			n += int(f)
		}
	}
	return n
}
