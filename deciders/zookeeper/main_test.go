package zookeeper_test

import (
	"context"
	"log"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/zookeeper"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
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

// zoo is ZooKeeper, for the tests that all stores have.
var zoo = storetest.Store[*zookeeper.Decider]{
	Open: zookeeper.Open,
	Start: func(t testing.TB) (string, storetest.Server) {
		s := stores.ZooKeeper(t)
		return s.Addr, s
	},
	Address: "zookeeper://$addr/elections/$election?create=true",
	Pause:   time.Second, // when it has tried all servers
}

// decider returns the election "/e".
func decider(conn zookeeper.Conn) *zookeeper.Decider { return zookeeper.NewDecider(conn, "/e", nil) }

func TestConformance(t *testing.T) {
	decidertest.Run(t, zoo.Elections(stores.ZooKeeper(t).Addr), nil)
}

// Handles that are connected to different servers, of which some lag behind others.
func TestConformanceOfEnsemble(t *testing.T) {
	var addrs []string
	for _, s := range stores.ZooKeeperCluster(t, 3) {
		addrs = append(addrs, s.Addr)
	}
	decidertest.Run(t, zoo.Elections(addrs...), nil)
}

func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	zoo.Processes(t)
}

func TestFaults(t *testing.T) { zoo.Faults(t) }

// Of all processes that run this, one at a time does the job.
func Example() {
	conn, err := zookeeper.Connect([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	decider := zookeeper.NewDecider(conn, "/elections/nightly", &zookeeper.Options{CreateParents: true})
	log.Print(leaderelection.Config{Decider: decider, LeaderID: "web-1"}.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
