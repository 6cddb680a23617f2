package etcd_test

import (
	"context"
	"errors"
	"log"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

func TestMain(m *testing.M) {
	proctest.Main(etcd.Open)
	goleak.VerifyTestMain(m)
}

// client returns a client of its own, closed at the end of the test.
func client(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	return clientOf(t, clientv3.Config{Endpoints: endpoints})
}

func clientOf(t testing.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.Logger = zap.NewNop()
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// decider returns the election "k" by a client of its own.
func decider(t testing.TB, endpoints ...string) *etcd.Decider {
	t.Helper()
	return etcd.NewDecider(client(t, endpoints...), "k", nil)
}

// ec is etcd, for the tests that all stores have.
var ec = storetest.Store[*etcd.Decider]{
	Open: etcd.Open,
	Start: func(t testing.TB) (string, storetest.Server) {
		m := stores.Etcd(t)
		return m.Endpoint, m
	},
	Address: "etcd://$addr/$election",
}

func open(ctx context.Context, address string) (*etcd.Decider, error) {
	return feedtest.Open(ctx, etcd.Open, address)
}

func TestConformance(t *testing.T) {
	decidertest.Run(t, ec.Elections(stores.Etcd(t).Endpoint), nil)
}

// What is at the key and no record of ours is reported, and left alone.
func TestForeignValueIsLeftAlone(t *testing.T) {
	c := client(t, stores.Etcd(t).Endpoint)
	storetest.LeavesAlone(t, feedtest.NoRecords(), func(key string) leaderelection.RaceDecider { return etcd.NewDecider(c, key, nil) },
		func(key, content string) {
			if _, err := c.Put(t.Context(), key, content); err != nil {
				t.Fatal(err)
			}
		},
		func(key string) string {
			got, err := c.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			return string(got.Kvs[0].Value)
		})
}

// A key that was deleted is an empty election; a token of its former life is void,
// even when there is a record again.
func TestDeletedKey(t *testing.T) {
	c := client(t, stores.Etcd(t).Endpoint)
	d := etcd.NewDecider(c, "k", nil)
	feed := feedtest.Follow(t, d)
	empty := feedtest.Next(t, feed)
	old := feedtest.Write(t, d, 1, empty.Token)
	feedtest.Next(t, feed)
	if _, err := c.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	for what, e := range map[string]*leaderelection.RaceEntry{"pushed": feedtest.Next(t, feed).RaceEntry, "read": feedtest.Read(t, d)} {
		if e == nil || !e.Vacant() || e.ElectionNumber != leaderelection.NoElections {
			t.Errorf("%s after the deletion: %+v", what, e)
		}
	}
	var lost *leaderelection.LostRaceError
	if _, err := d.WriteEntry(t.Context(), feedtest.State(9, old)); !errors.As(err, &lost) || lost.Current == nil || !lost.Current.Vacant() {
		t.Errorf("with the deleted version's token: %v", err)
	}
	feedtest.Write(t, d, 1, lost.Current.Token)
	feedtest.Lost(t, feedtest.WriteError(t, d, 9, old))
}

func TestBadInputs(t *testing.T) {
	c := client(t, "127.0.0.1:1") // nobody is asked
	feedtest.Refuses(t, etcd.NewDecider(c, "", nil), "name")
	// A bare number counts nanoseconds: nobody means so few.
	feedtest.Refuses(t, etcd.NewDecider(c, "one", &etcd.Options{FeedGrace: 10}), "nanoseconds")
}

// With the server gone every call returns when its ctx ends, and says what may be
// wrong.
func TestNoServer(t *testing.T) {
	d := decider(t, "127.0.0.1:1")
	feedtest.TimesOut(t, 200*time.Millisecond, d, nil, `"k"`, "endpoints")
	begin := time.Now()
	n := feedtest.Next(t, feedtest.Follow(t, d))
	if n.Err == nil || errors.Is(n.Err, leaderelection.ErrPermanent) {
		t.Errorf("the feed yields %+v", n)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the feed failed after %v", took)
	}
}

func TestClosedClient(t *testing.T) {
	stores.Nightly(t, "it waits for the client to give up")
	c := client(t, stores.Etcd(t).Endpoint)
	d := etcd.NewDecider(c, "k", nil)
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := feedtest.Next(t, feed); n.Err == nil {
		t.Errorf("the feed yields %+v", n)
	}
	_, err := d.ReadCurrent(t.Context())
	feedtest.Permanent(t, err, "closed")
	if err := d.Close(); err != nil {
		t.Errorf("Close of a decider that owns nothing: %v", err)
	}
}

func TestOutage(t *testing.T) { ec.Outage(t) }
func TestFaults(t *testing.T) { ec.Faults(t) }

func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	ec.Processes(t)
}

func TestAbandonedConnection(t *testing.T) { ec.Abandons(t, "") }

// The Example of package memory is a whole election.
func ExampleNewDecider() {
	client, err := clientv3.New(clientv3.Config{ // the keep-alives notice a network that swallows packets
		Endpoints: []string{"http://etcd-0:2379"}, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	config := leaderelection.Config{Decider: etcd.NewDecider(client, "elections/web", nil), LeaderID: "web-1"}
	log.Print(config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
