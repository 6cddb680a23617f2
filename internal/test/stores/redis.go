package stores

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RedisServer is a redis-server in a process of its own, which keeps its address
// and what it has saved when it is stopped and started again.
type RedisServer struct {
	*Process
	// Addr is where it serves clients: host and port.
	Addr string

	dir  string
	args []string
}

// Redis starts an empty redis-server that saves nothing, with these arguments
// besides, such as "--appendonly", "yes".
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	r := &RedisServer{Addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), dir: t.TempDir(), args: args}
	r.Start(t)
	return r
}

// Start starts a server that was stopped, and returns when it serves.
func (r *RedisServer) Start(t testing.TB) {
	t.Helper()
	_, port := split(t, r.Addr)
	r.run(t, append([]string{Need(t, "redis-server"), "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"}, r.args...))
}

// Stop kills the server; Start starts it again. It is a method of its own, so that
// the method value r.Stop stops the process that runs when it is called.
func (r *RedisServer) Stop() { r.Process.Stop() }

func (r *RedisServer) run(t testing.TB, command []string) {
	t.Helper()
	r.Process = Program{Name: "redis-server", Dir: r.dir}.start(t, command)
	r.Process.Addr = r.Addr
	r.serves(t, answersRedis)
}

// answersRedis is a Ready for a server that answers commands, if only with the
// demand for a password.
func answersRedis(ctx context.Context, addr string) error {
	answer, err := AskRedis(ctx, addr, "PING")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(answer, "+PONG") && !strings.HasPrefix(answer, "-NOAUTH") {
		return fmt.Errorf("PING is answered by %q", answer)
	}
	return nil
}

// AskRedis sends one command, words with spaces between, and returns its answer
// as it comes: "+OK" for instance, or the text of a bulk reply.
func AskRedis(ctx context.Context, addr, command string) (string, error) {
	return talk(ctx, addr, command+"\r\n", func(c io.Reader) (string, error) {
		in := bufio.NewReader(c)
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		line = strings.TrimSpace(line)
		var size int
		if n, _ := fmt.Sscanf(line, "$%d", &size); n == 0 || size < 0 {
			return line, nil
		}
		text := make([]byte, size)
		_, err = io.ReadFull(in, text)
		return string(text), err
	})
}

// Ask is AskRedis for this server. It fails the test where the answer is an error.
func (r *RedisServer) Ask(t testing.TB, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer, err := AskRedis(ctx, r.Addr, command)
	if err != nil || strings.HasPrefix(answer, "-") {
		t.Fatalf("stores: redis-server: %s: %s %v", command, answer, err)
	}
	return answer
}

// until asks a command until its answer has all of these parts.
func (r *RedisServer) until(t testing.TB, command string, parts ...string) {
	t.Helper()
	r.wait(t, command, func(answer string) (lacks string) {
		for _, part := range parts {
			if !strings.Contains(answer, part) {
				lacks = part
			}
		}
		return lacks
	})
}

// wait asks again until nothing is lacking in the answer.
func (r *RedisServer) wait(t testing.TB, command string, lacking func(answer string) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		answer := r.Ask(t, command)
		lacks := lacking(answer)
		if lacks == "" {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("stores: redis-server: %s: no %q in\n%s", command, lacks, answer)
		}
	}
}

// RedisReplica starts a replica of a server, and returns when it is in step.
func RedisReplica(t testing.TB, of *RedisServer, args ...string) *RedisServer {
	t.Helper()
	Nightly(t, "it starts a replica")
	host, port := split(t, of.Addr)
	r := Redis(t, append([]string{"--replicaof", host + " " + port}, args...)...)
	r.until(t, "INFO replication", "master_link_status:up")
	// And until it has said, as it does once a second, that it is beyond what it was
	// given first: before that it counts for nothing in a WAIT.
	_, own := split(t, r.Addr)
	master := regexp.MustCompile(`master_repl_offset:(\d+)`)
	replica := regexp.MustCompile(`port=` + own + `,state=online,offset=(\d+),`)
	offset := func(of *regexp.Regexp, in string) int64 {
		n := int64(-1)
		if m := of.FindStringSubmatch(in); m != nil {
			n, _ = strconv.ParseInt(m[1], 10, 64)
		}
		return n
	}
	of.Ask(t, "PUBLISH stores "+r.Addr)
	far := offset(master, of.Ask(t, "INFO replication"))
	of.wait(t, "INFO replication", func(answer string) string {
		if far < 0 || offset(replica, answer) < far {
			return fmt.Sprintf("%s at offset %d", r.Addr, far)
		}
		return ""
	})
	return r
}

// RedisCluster starts a Redis Cluster of so many masters, and returns when all of
// them serve all slots.
func RedisCluster(t testing.TB, masters int) []*RedisServer {
	t.Helper()
	Nightly(t, "it starts a cluster")
	const slots = 16384
	nodes := make([]*RedisServer, masters)
	for i := range nodes {
		nodes[i] = Redis(t, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1",
			"--cluster-port", fmt.Sprint(FreePort(t)), "--cluster-node-timeout", "2000")
		nodes[i].Ask(t, fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*slots/masters, (i+1)*slots/masters-1))
	}
	for i, n := range nodes[1:] {
		host, port := split(t, nodes[0].Addr)
		bus := nodes[0].args[len(nodes[0].args)-3]
		n.Ask(t, fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+2))
		n.Ask(t, fmt.Sprintf("CLUSTER MEET %s %s %s", host, port, bus))
	}
	for _, n := range nodes {
		n.until(t, "CLUSTER INFO", "cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d", masters), fmt.Sprintf("cluster_slots_ok:%d", slots))
	}
	return nodes
}

// RedisSentinel starts a sentinel, which watches master under the name "main" and
// promotes a replica when it has been down for half a second, and returns when
// it knows of the replicas.
func RedisSentinel(t testing.TB, master *RedisServer, replicas int) *RedisServer {
	t.Helper()
	Nightly(t, "it starts a cluster")
	host, port := split(t, master.Addr)
	s := &RedisServer{Addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), dir: t.TempDir()}
	_, own := split(t, s.Addr)
	conf := filepath.Join(s.dir, "sentinel.conf") // which it rewrites itself
	text := fmt.Sprintf("bind 127.0.0.1\nport %s\nsentinel monitor main %s %s 1\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 5000\n", own, host, port)
	write(t, conf, text)
	s.run(t, []string{Need(t, "redis-server"), conf, "--sentinel"})
	s.until(t, "INFO sentinel", fmt.Sprintf("slaves=%d", replicas), "status=ok")
	return s
}
