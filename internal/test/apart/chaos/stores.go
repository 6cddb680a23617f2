//go:build linux

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"
)

// setups start a store's servers, each on a host of its own.
var setups = map[string]func(*world) (*cluster, error){
	"etcd":        etcdCluster,
	"nats":        natsCluster,
	"zookeeper":   zooKeeperEnsemble,
	"redis":       func(w *world) (*cluster, error) { return redisSentinels(w, 2) },
	"redis-less":  func(w *world) (*cluster, error) { return redisSentinels(w, 1) },
	"redis-async": func(w *world) (*cluster, error) { return redisSentinels(w, 0) },
	"postgres":    postgresPair,
	"mariadb":     mariaDBPair,
	"kubernetes":  kubernetesServer,
	"consul":      consulCluster,
	"rethinkdb":   rethinkDBCluster,
}

func storeNames() []string { return slices.Sorted(maps.Keys(setups)) }

// servers makes n hosts for servers.
func (w *world) servers(n int) (*cluster, error) {
	s := &cluster{}
	for i := range n {
		h, err := w.net.add(fmt.Sprintf("s%d", i))
		if err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, h)
	}
	return s, nil
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
func etcdCluster(w *world) (*cluster, error) {
	program, err := w.build("etcd")
	if err != nil {
		return nil, err
	}
	s, err := w.servers(3)
	if err != nil {
		return nil, err
	}
	members := s.each(",", func(h *host) string { return fmt.Sprintf("%s=http://%s:2380", h.name, h.addr) })
	s.start = func(h *host) error {
		return w.server(h, program, "-fsync", "-data", w.data(h), "-name", h.name,
			"-peer", h.addr+":2380", "-client", h.addr+":2379", "-cluster", members)
	}
	s.url = "etcd://" + s.each(",", func(h *host) string { return h.addr + ":2379" }) + "/election"
	return s, s.startAll()
}

// natsCluster is three servers, with a bucket that is on all of them.
func natsCluster(w *world) (*cluster, error) {
	program, err := w.build("nats")
	if err != nil {
		return nil, err
	}
	s, err := w.servers(3)
	if err != nil {
		return nil, err
	}
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
		return w.server(h, program, config)
	}
	s.url = "nats://" + s.each("&server=", func(h *host) string { return h.addr + ":4222" })
	s.url = strings.Replace(s.url, "&server=", "/elections/one?create=true&replicas=3&server=", 1)
	return s, s.startAll()
}

// zooKeeperEnsemble is three servers.
func zooKeeperEnsemble(w *world) (*cluster, error) {
	s, err := w.servers(3)
	if err != nil {
		return nil, err
	}
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
	return s, s.startAll()
}

// redisSentinels is a master and two replicas, with a Sentinel beside each. A write counts
// when so many replicas have it.
func redisSentinels(w *world, wait int) (*cluster, error) {
	s, err := w.servers(3)
	if err != nil {
		return nil, err
	}
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
	return s, s.startAll()
}

// kubernetesServer is a kube-apiserver and its etcd, each on a host of its own.
func kubernetesServer(w *world) (*cluster, error) {
	etcd, err := w.build("etcd")
	if err != nil {
		return nil, err
	}
	kube, err := w.build("kube")
	if err != nil {
		return nil, err
	}
	s, err := w.servers(2)
	if err != nil {
		return nil, err
	}
	store, api := s.nodes[0], s.nodes[1]
	s.start = func(h *host) error {
		if h == store {
			return w.server(h, etcd, "-fsync", "-data", w.data(h), "-client", h.addr+":2379")
		}
		if err := os.MkdirAll(w.data(h), 0o755); err != nil {
			return err
		}
		return w.server(h, kube, "-data", w.data(h), "-etcd", store.addr+":2379", "-address", h.addr+":6443")
	}
	config, err := w.file(api, "kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"chaos",
"clusters":[{"name":"chaos","cluster":{"server":"https://%s:6443","certificate-authority":%q}}],
"users":[{"name":"chaos","user":{"token":"admin"}}],
"contexts":[{"name":"chaos","context":{"cluster":"chaos","user":"chaos","namespace":"default"}}]}`, api.addr, filepath.Join(w.data(api), "api", "apiserver.crt")))
	if err != nil {
		return nil, err
	}
	s.url = "kubernetes://default/one?kubeconfig=" + config
	return s, s.startAll()
}

// consulCluster is three servers, which elect their leader among themselves. All candidates ask the
// first one, as an agent is asked, and it asks the leader.
func consulCluster(w *world) (*cluster, error) {
	program, err := w.build("consul")
	if err != nil {
		return nil, err
	}
	s, err := w.servers(3)
	if err != nil {
		return nil, err
	}
	all := s.each(",", func(h *host) string { return h.addr + ":8301" })
	s.start = func(h *host) error {
		if err := os.MkdirAll(w.data(h), 0o755); err != nil {
			return err
		}
		return w.server(h, program, "-data", w.data(h), "-name", h.name, "-http", h.addr+":8500", "-server", h.addr+":8300", "-serf", h.addr+":8301",
			"-expect", "3", "-join", all, "-config", fmt.Sprintf(`{"bind_addr":%q,"client_addr":%[1]q}`, h.addr))
	}
	s.url = "consul://" + s.nodes[0].addr + ":8500/elections/one"
	return s, s.startAll()
}

// rethinkDBCluster is three servers, each of which has the table, which elect its primary among
// themselves. No registry has the program: the rethinkdb on the PATH is used.
func rethinkDBCluster(w *world) (*cluster, error) {
	s, err := w.servers(3)
	if err != nil {
		return nil, err
	}
	s.start = func(h *host) error {
		args := []string{"rethinkdb", "--directory", w.data(h), "--bind", "all", "--canonical-address", h.addr, "--no-http-admin", "--no-update-check", "--cache-size", "64"}
		for _, peer := range s.nodes {
			if peer != h {
				args = append(args, "--join", peer.addr+":29015")
			}
		}
		return w.server(h, args...)
	}
	s.url = "rethinkdb://" + s.each(",", func(h *host) string { return h.addr + ":28015" }) + "/test/elections/one"
	if err := s.startAll(); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return s, until("making the table", func() error { return w.registers.run(exec.Command(self, "table", s.nodes[0].addr)) })
}

// makeTable is the process that makes the table, once all servers have found one another.
func makeTable(addr string) error {
	session, err := r.Connect(r.ConnectOpts{Address: addr + ":28015"})
	if err != nil {
		return err
	}
	defer session.Close()
	var names []string
	if err := r.DB("rethinkdb").Table("server_status").Field("name").ReadAll(&names, session); err != nil {
		return err
	}
	if len(names) < 3 {
		return fmt.Errorf("of three servers there are %d", len(names))
	}
	return r.DB("test").TableCreate("elections", r.TableCreateOpts{Replicas: 3, Durability: "hard"}).Exec(session) // each cluster begins with this database
}
