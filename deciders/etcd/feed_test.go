package etcd_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
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

// Of three members the raft leader is killed, and then another one: see storetest.Ensemble. The one
// that is left has no leader, and says so to the feed at once.
func TestCluster(t *testing.T) {
	var servers []storetest.Server
	var addrs []string
	leads := -1
	members := stores.EtcdCluster(t, 3)
	for i, m := range members {
		servers, addrs = append(servers, m), append(addrs, m.Endpoint)
		status, err := client(t, m.Endpoint).Status(t.Context(), m.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if status.Leader == status.Header.MemberId {
			leads = i
		}
	}
	lone := ec.Opened(t, ec.At(members[(leads+1)%3].Endpoint, "e"))
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	said := make(chan error, 100)
	following.Go(func() {
		for ctx.Err() == nil {
			for _, err := range lone.Changes(ctx) {
				if errors.Is(err, rpctypes.ErrNoLeader) {
					said <- err
				}
			}
		}
	})
	defer following.Wait()
	defer cancel()
	ec.Ensemble(t, ec.At(strings.Join(addrs, ","), "e"), 6*time.Second, servers, leads, func() {
		for len(said) > 0 { // when the first one was killed
			<-said
		}
		feedtest.Passing(t, <-said, `"e"`)
	})
}
