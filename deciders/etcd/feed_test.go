package etcd_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The store is measured as it is in use: it waits for its disk.
func TestHandover(t *testing.T) {
	stores.Nightly(t, "it measures hand-overs")
	feedtest.Handover(t, ec.Elections(stores.Etcd(t, "-fsync").Endpoint))
}

func TestIdle(t *testing.T) {
	stores.Nightly(t, "it counts requests for ten terms")
	server := stores.Etcd(t)
	feedtest.Idle(t, ec.Elections(server.Endpoint), func() int { return server.Requests(t) })
}

func TestNews(t *testing.T) { ec.News(t, nil) }

// Open's keep-alives notice within 13 s that nothing comes through any more.
func TestHungConnectionIsNoticed(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	proxy := stores.NewRelay(t, stores.Etcd(t).Endpoint)
	victim := ec.Opened(t, "etcd://"+proxy.Addr+"/k")
	feed := feedtest.Follow(t, victim)
	if n := feedtest.Next(t, feed); n.Err != nil {
		t.Fatal(n.Err)
	}
	begin := time.Now()
	proxy.Cut()
	if n := feedtest.Next(t, feed); n.Err == nil {
		t.Errorf("the feed yields %+v", n)
	}
	took := time.Since(begin)
	t.Logf("noticed after %v", took.Round(time.Millisecond))
	if took > 20*time.Second {
		t.Errorf("noticed after %v", took)
	}
	proxy.Heal()
	feedtest.Read(t, victim)
}

// A feed whose connection was lost for a moment goes on by itself, and has missed
// nothing, even if what it had seen last was compacted meanwhile.
func TestFeedOverCompaction(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	server := stores.Etcd(t)
	c := client(t, server.Endpoint)
	proxy := stores.NewRelay(t, server.Endpoint)
	victim := etcd.NewDecider(client(t, proxy.Addr), "k", &etcd.Options{FeedGrace: time.Minute})
	writer := etcd.NewDecider(c, "k", nil)
	feed := feedtest.Follow(t, victim)
	feedtest.Next(t, feed)
	token := feedtest.Write(t, writer, 1, nil)
	feedtest.Number(t, feed, 1)
	for last := uint64(11); last <= 31; last += 10 {
		proxy.Refuse()
		for number := last - 9; number <= last; number++ {
			token = feedtest.Write(t, writer, number, token)
		}
		at, err := c.Get(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Compact(t.Context(), at.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
		proxy.Heal()
		if n := feedtest.Next(t, feed); n.Err != nil || uint64(n.ElectionNumber) != last {
			t.Fatalf("after the compaction the feed yields %+v, want %d", n, last)
		}
	}
	// A token read again after the compaction is as good as any.
	feedtest.Write(t, writer, 40, token)
	feedtest.Number(t, feed, 40)
}

// Of three members the raft leader is killed: a majority goes on. Then another one:
// the one that is left has no leader, says so to the feed at once, and serves no
// reads; when one is back, it goes on with what had been written.
func TestCluster(t *testing.T) {
	members := stores.EtcdCluster(t, 3)
	endpoints := []string{members[0].Endpoint, members[1].Endpoint, members[2].Endpoint}
	d := decider(t, endpoints...)
	token := feedtest.Write(t, d, 1, nil)

	leader := raftLeader(t, members)
	leader.Stop()
	begin := time.Now()
	for number := uint64(2); ; {
		_, err := d.WriteEntry(t.Context(), feedtest.State(number, token))
		if err == nil {
			break
		}
		if e := feedtest.Read(t, d); uint64(e.ElectionNumber) == number { // an open question, answered: it was written
			break
		} else {
			token = e.Token
		}
	}
	t.Logf("written again %v after the raft leader was killed", time.Since(begin).Round(time.Millisecond))

	others := slices.DeleteFunc(slices.Clone(members), func(m *stores.EtcdMember) bool { return m == leader })
	left, second := others[0], others[1]
	lone := decider(t, left.Endpoint)
	feed := feedtest.Follow(t, lone)
	feedtest.Number(t, feed, 2)
	begin = time.Now()
	second.Stop()
	n := feedtest.Next(t, feed)
	if !errors.Is(n.Err, rpctypes.ErrNoLeader) || errors.Is(n.Err, leaderelection.ErrPermanent) || !strings.Contains(n.Err.Error(), `"k"`) {
		t.Errorf("without a majority the feed yields %+v", n)
	}
	t.Logf("the feed failed %v after the majority was gone", time.Since(begin).Round(time.Millisecond))

	second.Start(t)
	left.Await(t)
	feedtest.Reads(t, lone, 2)
	leader.Start(t)
	leader.Await(t)
	feedtest.Reads(t, decider(t, leader.Endpoint), 2)
}

// raftLeader is the member that leads the others.
func raftLeader(t *testing.T, members []*stores.EtcdMember) *stores.EtcdMember {
	for _, m := range members {
		c := client(t, m.Endpoint)
		status, err := c.Status(t.Context(), m.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if status.Leader == status.Header.MemberId {
			return m
		}
	}
	t.Fatal("no member leads")
	return nil
}
