package zookeeper_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/zookeeper"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestHandover(t *testing.T) {
	stores.Nightly(t, "it measures hand-overs")
	feedtest.Handover(t, elections(stores.ZooKeeper(t).Addr))
}

// pause is for how long the client waits when it has tried all servers.
const pause = time.Second

func TestNewsAfterCutConnection(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	t.Parallel()
	server := stores.ZooKeeper(t)
	proxy := stores.NewRelay(t, server.Addr)
	feedtest.News(t, zookeeper.NewDecider(client(t, server.Addr), "/e", nil), zookeeper.NewDecider(client(t, proxy.Addr), "/e", nil),
		feedtest.Trouble{Break: proxy.Refuse, Heal: proxy.Heal, Pause: pause})
}

func TestNewsAfterRestart(t *testing.T) {
	stores.Nightly(t, "it breaks the store and waits")
	t.Parallel()
	server := stores.ZooKeeper(t)
	handle := elections(server.Addr)(t)
	feedtest.News(t, handle(), handle(), feedtest.Trouble{Break: server.Stop, Heal: func() { server.Start(t) }, Pause: pause})
}

// A session that the server has forgotten meanwhile ends the feed; the next one goes on.
func TestLostSession(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	t.Parallel()
	server := stores.ZooKeeper(t)
	proxy := stores.NewRelay(t, server.Addr)
	victim := opened(t, "zookeeper://"+proxy.Addr+"/e?session_timeout=1s")
	writer := zookeeper.NewDecider(client(t, server.Addr), "/e", nil)
	token := feedtest.Write(t, writer, 1, nil)
	feed := feedtest.Follow(t, victim)
	feedtest.Number(t, feed, 1)
	proxy.Refuse()
	others := strings.Count(server.Ask(t, "dump"), "0x")
	for lost := time.Now(); strings.Count(server.Ask(t, "dump"), "0x") == others; {
		if time.Since(lost) > 30*time.Second {
			t.Fatal("the session is kept")
		}
	}
	feedtest.Write(t, writer, 2, token)
	proxy.Heal()
	if n := feedtest.Next(t, feed); n.Err == nil {
		t.Errorf("the feed yields %+v", n)
	} else {
		feedtest.Passing(t, n.Err, "the watch was lost")
	}
	for lost := time.Now(); ; {
		if _, err := victim.ReadCurrent(t.Context()); err == nil {
			break
		} else if feedtest.Passing(t, err); time.Since(lost) > 30*time.Second {
			t.Fatal(err)
		}
	}
	feedtest.Number(t, feedtest.Follow(t, victim), 2)
}

// deaf is a connection whose watches never tell.
type deaf struct {
	*zk.Conn
	reads atomic.Int64
}

func (d *deaf) GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error) {
	d.reads.Add(1)
	data, stat, _, err := d.Conn.GetW(path)
	return data, stat, nil, err
}

// A watch that was lost is found out after a silence.
func TestSilentWatch(t *testing.T) {
	stores.Nightly(t, "it waits for the server or the client to give up")
	t.Parallel()
	c := client(t, stores.ZooKeeper(t).Addr)
	writer := zookeeper.NewDecider(c, "/e", nil)
	token := feedtest.Write(t, writer, 1, nil)
	conn := &deaf{Conn: c}
	feed := feedtest.Follow(t, zookeeper.NewDecider(conn, "/e", &zookeeper.Options{FeedSilence: 50 * time.Millisecond}))
	feedtest.Number(t, feed, 1)
	feedtest.Write(t, writer, 2, token)
	feedtest.Number(t, feed, 2)
	if n := conn.reads.Load(); n != 2 {
		t.Errorf("%d watches were set", n)
	}
}

// counting counts what is asked.
type counting struct {
	*zk.Conn
	watches, reads, writes atomic.Int64
}

func (c *counting) GetW(path string) ([]byte, *zk.Stat, <-chan zk.Event, error) {
	c.watches.Add(1)
	return c.Conn.GetW(path)
}

func (c *counting) Get(path string) ([]byte, *zk.Stat, error) {
	c.reads.Add(1)
	return c.Conn.Get(path)
}

func (c *counting) Multi(ops ...any) ([]zk.MultiResponse, error) {
	c.writes.Add(1)
	return c.Conn.Multi(ops...)
}

// An extension is one transaction, and of each a follower reads once.
func TestCosts(t *testing.T) {
	t.Parallel()
	conn := &counting{Conn: client(t, stores.ZooKeeper(t).Addr)}
	d := zookeeper.NewDecider(conn, "/e", nil)
	token := feedtest.Write(t, d, 1, nil)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 1)
	for n := uint64(2); n <= 11; n++ {
		token = feedtest.Write(t, d, n, token)
		feedtest.Number(t, feed, n)
	}
	if w, l, r := conn.writes.Load(), conn.watches.Load(), conn.reads.Load(); w != 11 || l != 11 || r != 0 {
		t.Errorf("%d transactions, %d reads with a watch, %d without", w, l, r)
	}
}

// Of three servers the one that leads is killed: a leadership outlives that. Then another
// one: nobody serves, which is told and may pass. When one is back, it goes on.
func TestEnsemble(t *testing.T) {
	t.Parallel()
	servers := stores.ZooKeeperCluster(t, 3)
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
	}
	all := strings.Join(addrs, ",")
	const term = 6 * time.Second
	elected := make(chan context.Context, 1)
	ctx, cancel := context.WithCancel(t.Context())
	campaign, err := leaderelection.Config{
		Decider: opened(t, "zookeeper://"+all+"/elections/e?create=true"), LeaderID: "a", TermLength: term, ClockPolicy: leaderelection.SharedClock,
		OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { elected <- ctx },
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = campaign.Wait() }()
	leading := <-elected
	follower := opened(t, "zookeeper://"+all+"/elections/e")
	feed := feedtest.Follow(t, follower)
	first := feedtest.Next(t, feed)

	i := leads(t, servers)
	servers[i].Stop()
	begun := time.Now()
	for n := first; n.Extension < first.Extension+4; {
		n = feedtest.Next(t, feed)
		if n.Err != nil {
			feed = feedtest.Follow(t, follower)
			n = feedtest.Next(t, feed)
		}
	}
	if leading.Err() != nil {
		t.Errorf("the leadership has ended: %v", context.Cause(leading))
	}
	t.Logf("four extensions within %v of the death of ZooKeeper's leader", time.Since(begun).Round(time.Millisecond))

	j := (i + 1) % 3
	servers[j].Stop()
	d := zookeeper.NewDecider(client(t, addrs...), "/other", nil)
	short, end := context.WithTimeout(t.Context(), 3*time.Second)
	defer end()
	_, err = d.WriteEntry(short, feedtest.State(1, nil))
	feedtest.Passing(t, err, "/other")
	servers[j].Start(t)
	for patience := time.Now(); ; {
		e, err := d.ReadCurrent(t.Context())
		if err == nil {
			if e.ElectionNumber == 0 {
				_, err = d.WriteEntry(t.Context(), feedtest.State(1, e.Token))
			}
			if err == nil || errors.Is(err, leaderelection.ErrLostRace) {
				break
			}
		}
		if feedtest.Passing(t, err); time.Since(patience) > 30*time.Second {
			t.Fatal(err)
		}
	}
}

// leads is which of the servers leads the others.
func leads(t *testing.T, servers []*stores.ZooKeeperServer) int {
	t.Helper()
	for i, s := range servers {
		if strings.Contains(s.Ask(t, "srvr"), "Mode: leader") {
			return i
		}
	}
	t.Fatal("nobody leads")
	return 0
}
