package zookeeper_test

import (
	"context"
	"log"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/zookeeper"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

func TestHandover(t *testing.T) {
	stores.Nightly(t, "it measures hand-overs")
	feedtest.Handover(t, zoo.Elections(stores.ZooKeeper(t).Addr))
}

func TestNews(t *testing.T) { zoo.News(t, nil) }

// A session that the server has forgotten meanwhile ends the feed; the next one goes on.
func TestLostSession(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	t.Parallel()
	server := stores.ZooKeeper(t)
	proxy := stores.NewRelay(t, server.Addr)
	victim := zoo.Opened(t, "zookeeper://"+proxy.Addr+"/e?session_timeout=1s")
	writer := decider(client(t, server.Addr))
	token := feedtest.Write(t, writer, 1, nil)
	feed := feedtest.Follow(t, victim)
	feedtest.Number(t, feed, 1)
	proxy.Refuse()
	others := strings.Count(server.Ask(t, "dump"), "0x")
	feedtest.Eventually(t, "the session is forgotten", func() bool { return strings.Count(server.Ask(t, "dump"), "0x") < others })
	feedtest.Write(t, writer, 2, token)
	proxy.Heal()
	feedtest.Passing(t, feedtest.Next(t, feed).Err, "the watch was lost")
	feedtest.Eventually(t, "it is read", func() bool {
		err := feedtest.ReadError(t, victim)
		if err != nil {
			feedtest.Passing(t, err)
		}
		return err == nil
	})
	feedtest.Number(t, feedtest.Follow(t, victim), 2)
}

// A watch that was lost is found out after a silence.
func TestSilentWatch(t *testing.T) {
	stores.Nightly(t, "it waits for the server or the client to give up")
	t.Parallel()
	c := client(t, stores.ZooKeeper(t).Addr)
	writer := decider(c)
	token := feedtest.Write(t, writer, 1, nil)
	conn := &lying{Conn: c, getW: func(data []byte, stat *zk.Stat, _ <-chan zk.Event, err error) ([]byte, *zk.Stat, <-chan zk.Event, error) {
		return data, stat, nil, err
	}}
	feed := feedtest.Follow(t, zookeeper.NewDecider(conn, "/e", &zookeeper.Options{FeedSilence: 50 * time.Millisecond}))
	feedtest.Number(t, feed, 1)
	feedtest.Write(t, writer, 2, token)
	feedtest.Number(t, feed, 2)
	if n := conn.looks.Load(); n != 2 {
		t.Errorf("%d watches were set", n)
	}
}

// An extension is one transaction, and of each a follower reads once.
func TestCosts(t *testing.T) {
	t.Parallel()
	conn := &lying{Conn: client(t, stores.ZooKeeper(t).Addr)}
	d := decider(conn)
	token := feedtest.Write(t, d, 1, nil)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 1)
	for n := uint64(2); n <= 11; n++ {
		token = feedtest.Write(t, d, n, token)
		feedtest.Number(t, feed, n)
	}
	if w, l, r := conn.writes.Load(), conn.looks.Load(), conn.reads.Load(); w != 11 || l != 11 || r != 0 {
		t.Errorf("%d transactions, %d reads with a watch, %d without", w, l, r)
	}
}

func TestEnsemble(t *testing.T) {
	t.Parallel()
	var servers []storetest.Server
	var addrs []string
	leads := -1
	for i, s := range stores.ZooKeeperCluster(t, 3) {
		servers, addrs = append(servers, s), append(addrs, s.Addr)
		if strings.Contains(s.Ask(t, "srvr"), "Mode: leader") {
			leads = i
		}
	}
	zoo.Ensemble(t, zoo.At(strings.Join(addrs, ","), "e"), 6*time.Second, servers, leads, nil)
}

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
