package stores

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
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

	peer  string // where the others reach it
	alone bool
}

// Consul starts one server by itself. Config is more of its configuration, as JSON, or is
// empty. To build it takes minutes: make consul does that before any test's time runs.
func Consul(t testing.TB, config string) *ConsulServer {
	t.Helper()
	Nightly(t, "it starts Consul")
	s := newConsul(t, config)
	s.alone = true
	s.Start(t)
	return s
}

// Start starts the server if it was stopped. If it has no others, it serves then.
func (s *ConsulServer) Start(t testing.TB) {
	t.Helper()
	s.nested.Start(t)
	if s.alone {
		s.Await(t)
	}
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
	metrics, err := get(t.Context(), "http://"+m.Endpoint+"/metrics")
	if err != nil {
		t.Fatalf("stores: etcd's metrics: %v", err)
	}
	n := 0
	for line := range strings.Lines(metrics) {
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

// KubeServer is a kube-apiserver: a process of its own, with an etcd of its own. It keeps
// its data and its address when it is stopped and started again.
type KubeServer struct {
	nested
	// Etcd keeps its objects, and goes on when this is stopped.
	Etcd *EtcdMember
	// Address is where it serves, with TLS: host and port.
	Address string

	dir string
}

// Kube starts a kube-apiserver, with more arguments for it. There are the users "admin", who
// may do everything, "candidate" and "nobody"; each one's token is the name. To build it
// takes minutes: make kube does that before any test's time runs.
func Kube(t testing.TB, args ...string) *KubeServer {
	t.Helper()
	Nightly(t, "it starts a kube-apiserver")
	k := &KubeServer{Etcd: Etcd(t), Address: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), dir: t.TempDir()}
	k.nested = nested{server: "kube", args: append([]string{"-data", k.dir, "-etcd", k.Etcd.Endpoint, "-address", k.Address, "--"}, args...)}
	k.Start(t)
	return k
}

// CA is the file of the authority of its certificate.
func (k *KubeServer) CA() string { return filepath.Join(k.dir, "api", "apiserver.crt") }

// Config returns the file of a kubeconfig for the user that has this token. Server is
// where the API server is reached: empty for its own address, or that of a proxy.
func (k *KubeServer) Config(t testing.TB, token, server string) string {
	t.Helper()
	if server == "" {
		server = k.Address
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test",
"clusters":[{"name":"test","cluster":{"server":"https://%s","certificate-authority":%q}}],
"users":[{"name":"test","user":{"token":%q}}],
"contexts":[{"name":"test","context":{"cluster":"test","user":"test","namespace":"default"}}]}`, server, k.CA(), token)
	write(t, file, text)
	return file
}

// Compact has etcd forget all versions of objects but the present ones.
func (k *KubeServer) Compact(t testing.TB) {
	t.Helper()
	var revision string
	status := k.gateway(t, "maintenance/status", "{}")
	if _, rest, found := strings.Cut(status, `"revision":"`); found {
		revision, _, _ = strings.Cut(rest, `"`)
	}
	k.gateway(t, "kv/compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, revision))
}

// gateway makes a call of etcd's API by JSON.
func (k *KubeServer) gateway(t testing.TB, method, body string) string {
	t.Helper()
	answer, err := ask(t.Context(), http.MethodPost, "http://"+k.Etcd.Endpoint+"/v3/"+method, body)
	if err != nil {
		t.Fatalf("stores: etcd's %s: %v", method, err)
	}
	return answer
}

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
		write(t, config, text)
		s.Start(t)
		all = append(all, s)
	}
	return all
}

// URL is the server's, as clients take it.
func (s *NATSServer) URL() string { return "nats://" + s.Addr }

// ZooKeeperServer is one server of ZooKeeper, which keeps its data and its address when it
// is stopped and started again.
type ZooKeeperServer struct {
	*Process
	// Addr is where it serves clients: host and port.
	Addr string

	dir, java string
}

// zooKeeperJars are where Debian has it.
var zooKeeperJars = []string{"/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"}

// ZooKeeper starts one server by itself, with these lines in its configuration beside
// what is needed.
func ZooKeeper(t testing.TB, config ...string) *ZooKeeperServer {
	t.Helper()
	s := newZooKeeper(t, config)
	s.Start(t)
	return s
}

// ZooKeeperCluster starts an ensemble of several servers, and returns when each of them
// says that it leads or follows.
func ZooKeeperCluster(t testing.TB, members int, config ...string) []*ZooKeeperServer {
	t.Helper()
	Nightly(t, "it starts a cluster")
	lines := append([]string{"initLimit=10", "syncLimit=4"}, config...)
	for i := range members {
		lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", i+1, FreePort(t), FreePort(t)))
	}
	var all []*ZooKeeperServer
	for i := range members {
		s := newZooKeeper(t, lines)
		write(t, filepath.Join(s.dir, "myid"), fmt.Sprint(i+1))
		s.launch(t)
		all = append(all, s)
	}
	for _, s := range all {
		s.Await(t)
	}
	return all
}

func newZooKeeper(t testing.TB, config []string) *ZooKeeperServer {
	t.Helper()
	for _, jar := range zooKeeperJars {
		if _, err := os.Stat(jar); err != nil {
			Missing(t, jar+" is missing: apt-get install zookeeper")
		}
	}
	port := FreePort(t)
	s := &ZooKeeperServer{Addr: fmt.Sprintf("127.0.0.1:%d", port), dir: t.TempDir(), java: Need(t, "java")}
	lines := append([]string{"tickTime=500", "dataDir=" + s.dir, fmt.Sprintf("clientPort=%d", port), "clientPortAddress=127.0.0.1",
		"admin.enableServer=false", "4lw.commands.whitelist=*", "maxClientCnxns=0"}, config...)
	write(t, filepath.Join(s.dir, "zoo.cfg"), strings.Join(lines, "\n")+"\n")
	return s
}

// Start starts a server that was stopped, and returns when it serves.
func (s *ZooKeeperServer) Start(t testing.TB) {
	t.Helper()
	s.launch(t)
	s.Await(t)
}

func (s *ZooKeeperServer) launch(t testing.TB) {
	t.Helper()
	p := Program{Name: "zookeeper", Dir: s.dir}
	s.Process = p.start(t, []string{s.java, "-Xmx256m", "-cp", strings.Join(zooKeeperJars, ":"), "-Dzookeeper.admin.enableServer=false",
		"-Dzookeeper.forceSync=no", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.dir, "zoo.cfg")})
	s.Process.Addr = s.Addr
}

// Await returns when the server serves clients: alone, or as one of a quorum.
func (s *ZooKeeperServer) Await(t testing.TB) {
	t.Helper()
	s.serves(t, func(ctx context.Context, addr string) error {
		answer, err := askZooKeeper(ctx, addr, "srvr")
		if err == nil && !strings.Contains(answer, "Mode: ") {
			err = fmt.Errorf("it says %q", answer)
		}
		return err
	})
}

// Ask sends one of ZooKeeper's words of four letters, such as "srvr".
func (s *ZooKeeperServer) Ask(t testing.TB, word string) string {
	t.Helper()
	answer, err := askZooKeeper(t.Context(), s.Addr, word)
	if err != nil {
		t.Fatalf("stores: asking ZooKeeper %s: %v", word, err)
	}
	return answer
}

func askZooKeeper(ctx context.Context, addr, word string) (string, error) {
	return talk(ctx, addr, word, func(c io.Reader) (string, error) {
		answer, err := io.ReadAll(c)
		return string(answer), err
	})
}
