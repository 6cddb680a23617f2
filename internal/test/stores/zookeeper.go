package stores

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
		if err := os.WriteFile(filepath.Join(s.dir, "myid"), fmt.Append(nil, i+1), 0o600); err != nil {
			t.Fatal(err)
		}
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
	if err := os.WriteFile(filepath.Join(s.dir, "zoo.cfg"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}
