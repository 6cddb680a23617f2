//go:build linux

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setup is how a store's servers are started, each on a host of its own.
type setup struct {
	servers  int
	programs []string // of internal/test/stores/servers, which are built
	// start says how each server is started, and by which URL candidates open the store, and starts all.
	start func(w *world, s *cluster, programs []string) error
}

var setups = map[string]setup{
	"etcd":        {3, []string{"etcd"}, etcdCluster},
	"nats":        {3, []string{"nats"}, natsCluster},
	"zookeeper":   {3, nil, zooKeeperEnsemble},
	"redis":       {3, nil, redisSentinels(2)},
	"redis-less":  {3, nil, redisSentinels(1)},
	"redis-async": {3, nil, redisSentinels(0)},
	"postgres":    {2, nil, postgresPair},
	"mariadb":     {2, nil, mariaDBPair},
	"kubernetes":  {2, []string{"etcd", "kube"}, kubernetesServer},
	"consul":      {3, []string{"consul"}, consulCluster},
}

func storeNames() []string { return slices.Sorted(maps.Keys(setups)) }

// begin starts a store.
func (w *world) begin(of setup) error {
	var programs []string
	for _, name := range of.programs {
		program, err := w.build(name)
		if err != nil {
			return err
		}
		programs = append(programs, program)
	}
	w.store = &cluster{}
	for i := range of.servers {
		h, err := w.net.add(fmt.Sprintf("s%d", i))
		if err != nil {
			return err
		}
		w.store.nodes = append(w.store.nodes, h)
	}
	return of.start(w, w.store, programs)
}

// startAll starts all servers of a store.
func (s *cluster) startAll() error {
	for _, n := range s.nodes {
		if err := s.start(n); err != nil {
			return err
		}
	}
	return nil
}

// each is what f says of every server, joined by sep.
func (s *cluster) each(sep string, f func(*host) string) string {
	var all []string
	for _, n := range s.nodes {
		all = append(all, f(n))
	}
	return strings.Join(all, sep)
}

// file writes a server's file, and returns its path.
func (w *world) file(h *host, name, text string) (string, error) {
	dir := w.data(h)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(text), 0o644)
}

// data is the directory of a server's data.
func (w *world) data(h *host) string { return filepath.Join(w.dir, "data-"+h.name) }

// etcdCluster is three members, which elect their leader among themselves.
func etcdCluster(w *world, s *cluster, programs []string) error {
	members := s.each(",", func(h *host) string { return fmt.Sprintf("%s=http://%s:2380", h.name, h.addr) })
	s.start = func(h *host) error {
		return w.server(h, programs[0], "-fsync", "-data", w.data(h), "-name", h.name,
			"-peer", h.addr+":2380", "-client", h.addr+":2379", "-cluster", members)
	}
	s.url = "etcd://" + s.each(",", func(h *host) string { return h.addr + ":2379" }) + "/election"
	return s.startAll()
}

// natsCluster is three servers, with a bucket that is on all of them.
func natsCluster(w *world, s *cluster, programs []string) error {
	routes := s.each(", ", func(h *host) string { return fmt.Sprintf("%q", "nats://"+h.addr+":6222") })
	s.start = func(h *host) error {
		config, err := w.file(h, "nats.conf", fmt.Sprintf(`server_name: %s
listen: "%s:4222"
jetstream { store_dir: %q, sync_interval: always }
cluster { name: chaos, listen: "%s:6222", routes: [%s] }
`, h.name, h.addr, w.data(h), h.addr, routes))
		if err != nil {
			return err
		}
		return w.server(h, programs[0], config)
	}
	s.url = "nats://" + s.each("&server=", func(h *host) string { return h.addr + ":4222" })
	s.url = strings.Replace(s.url, "&server=", "/elections/one?create=true&replicas=3&server=", 1)
	return s.startAll()
}

// zooKeeperEnsemble is three servers.
func zooKeeperEnsemble(w *world, s *cluster, _ []string) error {
	var members strings.Builder
	for i, h := range s.nodes {
		fmt.Fprintf(&members, "server.%d=%s:2888:3888\n", i+1, h.addr)
	}
	s.start = func(h *host) error {
		if _, err := w.file(h, "myid", fmt.Sprint(slices.Index(s.nodes, h)+1)); err != nil {
			return err
		}
		config, err := w.file(h, "zoo.cfg", fmt.Sprintf("tickTime=500\ninitLimit=10\nsyncLimit=4\ndataDir=%s\nclientPort=2181\nclientPortAddress=%s\nadmin.enableServer=false\nmaxClientCnxns=0\n%s",
			w.data(h), h.addr, &members))
		if err != nil {
			return err
		}
		return w.server(h, "java", "-Xmx256m", "-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar",
			"-Dzookeeper.admin.enableServer=false", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
			"org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
	}
	s.url = "zookeeper://" + s.each(",", func(h *host) string { return h.addr + ":2181" }) + "/one?create=true"
	return s.startAll()
}

// redisSentinels is a master and two replicas, with a Sentinel beside each. A write counts
// when so many replicas have it.
func redisSentinels(wait int) func(w *world, s *cluster, _ []string) error {
	return func(w *world, s *cluster, _ []string) error {
		master := s.nodes[0]
		made := map[*host]bool{}
		s.start = func(h *host) error {
			if !made[h] { // later they are what Sentinel has made of them
				made[h] = true
				config := fmt.Sprintf("bind 0.0.0.0\nport 6379\ndir %s\nprotected-mode no\nappendonly yes\nappendfsync always\nsave \"\"\nrepl-diskless-sync-delay 0\n", w.data(h))
				if h != master {
					config += "replicaof " + master.addr + " 6379\n"
				}
				sentinel := fmt.Sprintf("bind 0.0.0.0\nport 26379\ndir %s\nprotected-mode no\nsentinel monitor main %s 6379 2\nsentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n", w.data(h), master.addr)
				_, err := w.file(h, "redis.conf", config)
				if err == nil {
					_, err = w.file(h, "sentinel.conf", sentinel)
				}
				if err != nil {
					return err
				}
			}
			if err := w.server(h, "redis-server", filepath.Join(w.data(h), "redis.conf")); err != nil {
				return err
			}
			return w.server(h, "redis-server", filepath.Join(w.data(h), "sentinel.conf"), "--sentinel")
		}
		addrs := s.each("&addr=", func(h *host) string { return h.addr + ":26379" })
		s.url = "redis://" + strings.Replace(addrs, "&addr=", fmt.Sprintf("/0?key=one&master_name=main&wait_replicas=%d&addr=", wait), 1)
		return s.startAll()
	}
}

// kubernetesServer is a kube-apiserver and its etcd, each on a host of its own.
func kubernetesServer(w *world, s *cluster, programs []string) error {
	store, api := s.nodes[0], s.nodes[1]
	s.start = func(h *host) error {
		if h == store {
			return w.server(h, programs[0], "-fsync", "-data", w.data(h), "-client", h.addr+":2379")
		}
		if err := os.MkdirAll(w.data(h), 0o755); err != nil {
			return err
		}
		return w.server(h, programs[1], "-data", w.data(h), "-etcd", store.addr+":2379", "-address", h.addr+":6443")
	}
	config, err := w.file(api, "kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"chaos",
"clusters":[{"name":"chaos","cluster":{"server":"https://%s:6443","certificate-authority":%q}}],
"users":[{"name":"chaos","user":{"token":"admin"}}],
"contexts":[{"name":"chaos","context":{"cluster":"chaos","user":"chaos","namespace":"default"}}]}`, api.addr, filepath.Join(w.data(api), "api", "apiserver.crt")))
	if err != nil {
		return err
	}
	s.url = "kubernetes://default/one?kubeconfig=" + config
	return s.startAll()
}

// consulCluster is three servers, which elect their leader among themselves. All candidates ask the
// first one, as an agent is asked, and it asks the leader.
func consulCluster(w *world, s *cluster, programs []string) error {
	all := s.each(",", func(h *host) string { return h.addr + ":8301" })
	s.start = func(h *host) error {
		if err := os.MkdirAll(w.data(h), 0o755); err != nil {
			return err
		}
		return w.server(h, programs[0], "-data", w.data(h), "-name", h.name, "-http", h.addr+":8500", "-server", h.addr+":8300", "-serf", h.addr+":8301",
			"-expect", "3", "-join", all, "-config", fmt.Sprintf(`{"bind_addr":%q,"client_addr":%[1]q}`, h.addr))
	}
	s.url = "consul://" + s.nodes[0].addr + ":8500/elections/one"
	return s.startAll()
}

// pair is a primary and its standby, whose answer the primary waits for. Its address moves
// with the primary, as a load balancer or keepalived has it. A fail-over kills the primary,
// promotes the standby, and makes a new standby in the place of the old primary: nobody
// may write to both.
type pair struct {
	w       *world
	s       *cluster
	primary *host
	run     func(h *host) error // the server with what is there
	clone   func(h *host) error // makes h a standby of the primary, from nothing
	promote func(h *host) error
}

// address is the pair's.
const address = "10.77.0.200"

func (p *pair) failover() error {
	old, next := p.primary, p.s.nodes[0]
	if next == old {
		next = p.s.nodes[1]
	}
	old.kill()
	if err := p.promote(next); err != nil {
		return err
	}
	p.primary = next
	if err := p.w.net.move(address, old, next); err != nil {
		return err
	}
	p.w.say("%s is the primary now", next.name)
	if err := os.RemoveAll(p.w.data(old)); err != nil {
		return err
	}
	return p.clone(old)
}

// move takes an address from one host to another. From may be nil.
func (n *network) move(addr string, from, to *host) error {
	if from != nil {
		if err := from.run(exec.Command("ip", "address", "del", addr+"/32", "dev", "chaos0")); err != nil {
			return err
		}
	}
	n.mu.Lock()
	n.hosts[[4]byte{10, 77, 0, 200}] = to
	n.mu.Unlock()
	return to.run(exec.Command("ip", "address", "add", addr+"/32", "dev", "chaos0"))
}

// until tries again what a server is not ready for yet.
func until(what string, f func() error) (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// as is a command that runs as the user of PostgreSQL, since neither server runs as root.
func as(args ...string) []string {
	return append([]string{"setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"}, args...)
}

// own makes a directory that this user owns.
func own(dir string) error {
	u, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

func command(args []string) *exec.Cmd {
	c := exec.Command(args[0], args[1:]...)
	c.Dir = os.TempDir()
	return c
}

// postgresPair is a primary whose commits wait for its standby.
func postgresPair(w *world, s *cluster, _ []string) error {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(bins) == 0 {
		return fmt.Errorf("PostgreSQL is not in /usr/lib/postgresql: apt-get install postgresql")
	}
	bin := func(name string) string { return filepath.Join(bins[len(bins)-1], name) }
	data := func(h *host) string { return filepath.Join(w.data(h), "data") }
	p := &pair{w: w, s: s, primary: s.nodes[0]}
	p.run = func(h *host) error {
		_ = os.Remove(filepath.Join(data(h), "postmaster.pid")) // all that was there is killed
		return w.serverIn(w.data(h), nil, h, as(bin("postgres"), "-D", data(h), "-c", "unix_socket_directories=", "-c", "listen_addresses=*",
			"-c", "shared_buffers=16MB", "-c", "synchronous_standby_names=*", "-c", "wal_keep_size=64MB", "-c", "log_min_messages=fatal")...)
	}
	p.clone = func(h *host) error {
		if err := own(w.data(h)); err != nil {
			return err
		}
		if err := until("pg_basebackup", func() error {
			_ = os.RemoveAll(data(h))
			return h.run(command(as(bin("pg_basebackup"), "--host", p.primary.addr, "--username", "postgres", "--pgdata", data(h),
				"--write-recovery-conf", "--checkpoint", "fast", "--no-sync")))
		}); err != nil {
			return err
		}
		return p.run(h)
	}
	p.promote = func(h *host) error {
		return until("pg_ctl promote", func() error {
			return h.run(command(as(bin("pg_ctl"), "promote", "-D", data(h), "-s")))
		})
	}
	s.start, s.failover = p.run, p.failover
	first := p.primary
	if err := own(w.data(first)); err != nil {
		return err
	}
	if err := first.run(command(as(bin("initdb"), "--pgdata", data(first), "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"))); err != nil {
		return err
	}
	hba := "host all all all trust\nhost replication all all trust\n"
	if err := os.WriteFile(filepath.Join(data(first), "pg_hba.conf"), []byte(hba), 0o644); err != nil {
		return err
	}
	if err := p.run(first); err != nil {
		return err
	}
	if err := p.clone(s.nodes[1]); err != nil {
		return err
	}
	s.url = "postgres://postgres@" + address + ":5432/postgres?election=one&create=true&sslmode=disable&connect_timeout=2"
	return w.net.move(address, nil, first)
}

// mariaDBPair is a primary whose commits wait for its replica (semi-synchronous, without
// the timeout after which they no longer would).
func mariaDBPair(w *world, s *cluster, _ []string) error {
	p := &pair{w: w, s: s, primary: s.nodes[0]}
	ask := func(h *host, sql string) error {
		return until("mariadb", func() error {
			return h.run(command([]string{"mariadb", "--no-defaults", "--socket", filepath.Join(w.data(h), "socket"), "--user", "root", "--execute", sql}))
		})
	}
	master := "SET GLOBAL rpl_semi_sync_slave_enabled=0; SET GLOBAL rpl_semi_sync_master_enabled=1; SET GLOBAL read_only=0;"
	p.run = func(h *host) error {
		data := filepath.Join(w.data(h), "data")
		args := as("/usr/sbin/mariadbd", "--no-defaults", "--datadir="+data, "--bind-address=0.0.0.0", "--socket="+filepath.Join(w.data(h), "socket"),
			"--pid-file="+filepath.Join(w.data(h), "pid"), "--tmpdir="+w.data(h), "--skip-name-resolve", "--performance-schema=OFF",
			"--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1",
			fmt.Sprintf("--server-id=%d", h.ip[3]), "--log-bin=binlog", "--log-slave-updates", "--gtid-strict-mode",
			"--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout=3600000", "--rpl-semi-sync-master-wait-no-slave=ON")
		if h == p.primary {
			args = append(args, "--rpl-semi-sync-master-enabled=ON")
		} else {
			args = append(args, "--rpl-semi-sync-slave-enabled=ON", "--read-only=ON")
		}
		return w.serverIn(w.data(h), nil, h, args...)
	}
	install := func(h *host) error {
		if err := own(w.data(h)); err != nil {
			return err
		}
		c := command(as("mariadb-install-db", "--no-defaults", "--datadir="+filepath.Join(w.data(h), "data"),
			"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"))
		c.Env = append(os.Environ(), "TMPDIR="+w.data(h))
		if err := h.run(c); err != nil {
			return err
		}
		return p.run(h)
	}
	p.clone = func(h *host) error { // all there ever was is in the primary's binary log
		if err := install(h); err != nil {
			return err
		}
		return ask(h, fmt.Sprintf("RESET MASTER; SET GLOBAL gtid_slave_pos=''; CHANGE MASTER TO master_host='%s', master_user='chaos', master_password='chaos', master_connect_retry=1, master_use_gtid=slave_pos; START SLAVE", p.primary.addr))
	}
	p.promote = func(h *host) error {
		return ask(h, "STOP SLAVE; RESET SLAVE ALL; "+master)
	}
	s.start, s.failover = p.run, p.failover
	first := p.primary
	if err := install(first); err != nil {
		return err
	}
	if err := ask(first, "SET GLOBAL rpl_semi_sync_master_enabled=0; RESET MASTER; CREATE DATABASE elections; CREATE USER chaos IDENTIFIED BY 'chaos'; GRANT ALL ON *.* TO chaos; "+master); err != nil {
		return err
	}
	if err := p.clone(s.nodes[1]); err != nil {
		return err
	}
	s.url = "mysql://chaos:chaos@" + address + ":3306/elections?election=one&create=true&timeout=2s"
	return w.net.move(address, nil, first)
}
