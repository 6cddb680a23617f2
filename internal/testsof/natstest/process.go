package natstest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

// env holds the options of a server that is to be a process of its own.
const env = "STORES_NATS_SERVER"

// Main is for the TestMain of tests that use Processes. Where this process
// was started to be a server it is one, and does not return; else it does nothing.
func Main() {
	text, set := os.LookupEnv(env)
	if !set {
		return
	}
	var p place
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		var s *server.Server
		if s, err = server.NewServer(p.options()); err == nil {
			s.Start()
			s.WaitForShutdown()
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// place is where a server listens and keeps its data.
type place struct {
	Name, Dir    string
	Port, Member int
	Routes       string
}

func (p *place) options() *server.Options {
	o := options()
	o.ServerName, o.StoreDir, o.Port = p.Name, p.Dir, p.Port
	if p.Routes != "" {
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: p.Member}
		o.Routes = server.RoutesFromStr(p.Routes)
	}
	return o
}

// Process is a nats-server in a process of its own, which can be killed.
type Process struct {
	*stores.Process // the latest
	place           place
}

// Group is the servers of a cluster, or a single one.
type Group []*Process

// Processes starts n servers, each in a process of its own, a cluster where
// n is more than one. Call Main in TestMain.
func Processes(t testing.TB, n int) Group {
	t.Helper()
	ports := freePorts(t, 2*n)
	var routes string
	for _, member := range ports[n:] {
		routes += fmt.Sprintf(",nats://127.0.0.1:%d", member)
	}
	dir := storeDir(t)
	var all Group
	for i := range n {
		name := "n" + strconv.Itoa(i+1)
		p := &Process{place: place{Name: name, Dir: filepath.Join(dir, name), Port: ports[i], Member: ports[n+i]}}
		if n > 1 {
			p.place.Routes = routes[1:]
		}
		p.Start(t)
		all = append(all, p)
	}
	ready(t, all.JetStream(t), n)
	return all
}

// Start starts the server, again where it was killed: with the same ports and
// what was written to its files.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	text, err := json.Marshal(p.place)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.Process = stores.Start(t, stores.Program{
		Name:    "nats-server " + p.place.Name,
		Command: func(int) []string { return []string{self} }, // its ports must not change
		Env:     []string{env + "=" + string(text)},
		Ready:   func(ctx context.Context, _ string) error { return stores.Accepts(ctx, p.addr()) },
	})
}

// Kill kills the server as kill -9 does.
func (p *Process) Kill() { p.Stop() }

func (p *Process) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.place.Port) }

// JetStream returns a client that knows only this server.
func (p *Process) JetStream(t testing.TB) jetstream.JetStream {
	t.Helper()
	return Group{p}.JetStream(t)
}

// JetStream returns a client that knows all servers.
func (all Group) JetStream(t testing.TB, o ...nats.Option) jetstream.JetStream {
	t.Helper()
	var url string
	for _, p := range all {
		url += ",nats://" + p.addr()
	}
	js, err := jetstream.New(connect(t, url[1:], o...))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Named returns the server of that name, as in ClusterInfo.Leader.
func (all Group) Named(t testing.TB, name string) *Process {
	t.Helper()
	for _, p := range all {
		if p.place.Name == name {
			return p
		}
	}
	t.Fatalf("natstest: no server is called %q", name)
	return nil
}

// ready waits until a bucket can be made that is replicated to n servers.
func ready(t testing.TB, js jetstream.JetStream, n int) {
	t.Helper()
	kv := jetstream.KeyValueConfig{Bucket: "ready", Replicas: n}
	await(t, "JetStream", time.Minute, func() error {
		_, err := js.CreateKeyValue(t.Context(), kv)
		return err
	})
	if err := js.DeleteKeyValue(t.Context(), kv.Bucket); err != nil {
		t.Fatalf("natstest: %v", err)
	}
}
