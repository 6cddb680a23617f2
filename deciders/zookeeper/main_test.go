package zookeeper_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/zookeeper"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(zookeeper.Open)
	goleak.VerifyTestMain(m)
}

// client returns a connection of its own, closed at the end of the test.
func client(t testing.TB, addrs ...string) *zk.Conn {
	t.Helper()
	c, err := zookeeper.Connect(addrs, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *zookeeper.Decider {
	t.Helper()
	return feedtest.Opened(t, zookeeper.Open, address)
}

var create = &zookeeper.Options{CreateParents: true}

// elections returns what makes an election after the other, each handle with a connection
// of its own, to one of the servers after the other.
func elections(addrs ...string) func(t testing.TB) func() leaderelection.RaceDecider {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		path, n := "/elections/"+feedtest.Unique(), 0
		return func() leaderelection.RaceDecider {
			n++
			return zookeeper.NewDecider(client(t, addrs[n%len(addrs)]), path, create)
		}
	}
}

func TestConformance(t *testing.T) {
	decidertest.Run(t, elections(stores.ZooKeeper(t).Addr), nil)
}

// Handles that are connected to different servers, of which some lag behind others.
func TestConformanceOfEnsemble(t *testing.T) {
	var addrs []string
	for _, s := range stores.ZooKeeperCluster(t, 3) {
		addrs = append(addrs, s.Addr)
	}
	decidertest.Run(t, elections(addrs...), nil)
}

// Three candidates in processes of their own: one is killed, one stopped past its
// term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	addr := stores.ZooKeeper(t).Addr
	proctest.Run(t, proctest.Options{Address: "zookeeper://" + addr + "/elections/e?create=true", Upstream: addr})
}

// Whatever befalls the leader's connections for a while, it keeps its leadership.
func TestFaults(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	addr := stores.ZooKeeper(t).Addr
	proxy := stores.NewRelay(t, addr)
	proctest.Faults(t, opened(t, "zookeeper://"+proxy.Addr+"/e"), zookeeper.NewDecider(client(t, addr), "/e", nil), proxy)
}

// Without a connection every call says so.
func TestNilConnection(t *testing.T) {
	feedtest.Permanent(t, feedtest.ReadError(t, zookeeper.NewDecider(nil, "/e", nil)), "the connection is nil")
}
