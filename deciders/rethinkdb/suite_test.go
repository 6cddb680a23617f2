package rethinkdb_test

import (
	"context"
	"errors"
	"log"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(rethinkdb.Open)
	// The driver leaves this behind by itself if it cannot connect.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hailocab/go-hostpool.(*epsilonGreedyHostPool).epsilonGreedyDecay"))
}

// server is host:port of a real RethinkDB to run the tests on as well, if one is to
// be had. They use the database leaderelection_test.
var server = os.Getenv("LEADERELECTION_TEST_RETHINKDB")

// everyServer runs f with the address of the imitation, and of a real server if there
// is one.
func everyServer(t *testing.T, f func(t *testing.T, addr string)) {
	t.Run("imitation", func(t *testing.T) { f(t, imitate(t).addr) })
	if server != "" {
		made := connect(t, server)
		_, _ = r.DBCreate(database).RunWrite(made) // they may be there
		_, _ = r.DB(database).TableCreate(table, r.TableCreateOpts{Durability: "hard"}).RunWrite(made)
		if _, err := r.DB(database).Table(table).Wait().Run(made); err != nil {
			t.Fatal(err)
		}
		t.Run("server", func(t *testing.T) { f(t, server) })
	}
}

// connect returns a session of its own, closed at the end of the test.
func connect(t testing.TB, addr string) *r.Session {
	t.Helper()
	s, err := r.Connect(r.ConnectOpts{Address: addr, Timeout: 5 * time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

const (
	database = "leaderelection_test"
	table    = "elections"
)

// web is the election that most tests hold, by a client of its own.
func web(t testing.TB, addr string) *rethinkdb.Decider {
	t.Helper()
	return rethinkdb.NewDecider(connect(t, addr), database, table, "web", nil)
}

// elections returns what makes an election after the other, each handle with a session
// of its own.
func elections(addr string) feedtest.NewElection {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		name := feedtest.Unique()
		return func() leaderelection.RaceDecider {
			return rethinkdb.NewDecider(connect(t, addr), database, table, name, nil)
		}
	}
}

func open(ctx context.Context, address string) (*rethinkdb.Decider, error) {
	return feedtest.Open(ctx, rethinkdb.Open, address)
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *rethinkdb.Decider {
	t.Helper()
	return feedtest.Opened(t, rethinkdb.Open, address)
}

func TestHandover(t *testing.T) {
	everyServer(t, func(t *testing.T, addr string) { feedtest.Handover(t, elections(addr)) })
}

func TestIdle(t *testing.T) {
	s := imitate(t)
	// Each replace is read back, which is a get.
	feedtest.Idle(t, elections(s.addr), func() int { return s.count("get") + s.count("changes") })
}

func TestNewsAfterCutConnection(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	s := imitate(t)
	proxy := stores.NewRelay(t, s.addr)
	writer := web(t, s.addr)
	victim := web(t, proxy.Addr)
	feedtest.News(t, writer, victim, feedtest.Trouble{Break: proxy.Refuse, Heal: proxy.Heal})
}

func TestNewsAfterRestart(t *testing.T) {
	s := imitate(t)
	handle := elections(s.addr)(t)
	feedtest.News(t, handle(), handle(), feedtest.Trouble{Break: s.stop, Heal: func() { s.start(t, s.addr) }})
}

func TestOutage(t *testing.T) {
	s := imitate(t)
	feedtest.Outage(t, elections(s.addr), feedtest.Trouble{Break: s.stop, Heal: func() { s.start(t, s.addr) }})
}

// Three candidates in processes of their own, on the imitation in this one: one is killed,
// one stopped past its term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	everyServer(t, func(t *testing.T, addr string) {
		proctest.Run(t, proctest.Options{Address: "rethinkdb://" + addr + "/leaderelection_test/elections/" + feedtest.Unique() + "?timeout=1s", Upstream: addr})
	})
}

// What others do to the row by hand is told, too.
func TestChangesByHand(t *testing.T) {
	s, d := imitated(t)
	feed := feedtest.Follow(t, d)
	first := feedtest.Number(t, feed, 0)
	feedtest.Write(t, d, 1, first.Token)
	feedtest.Number(t, feed, 1)
	s.set("web", nil)
	empty := feedtest.Number(t, feed, 0)
	if !empty.Vacant() {
		t.Errorf("deleted: %+v", empty)
	}
	feedtest.Write(t, d, 1, empty.Token)
	feedtest.Number(t, feed, 1)
	s.set("other", map[string]any{"id": "other"}) // somebody else's
	s.set("web", map[string]any{"id": "web", "holder": "x"})
	if n := feedtest.Next(t, feed); n.RaceEntry != nil || !errors.Is(n.Err, leaderelection.ErrPermanent) {
		t.Errorf("the feed yields %+v", n)
	}
}

// A replica that goes away ends the feed.
func TestFeedIsAborted(t *testing.T) {
	s, d := imitated(t)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	s.abort("Changefeed aborted (unavailable).")
	feedtest.Passing(t, feedtest.Next(t, feed).Err)
}

// A feed whose server has fallen silent ends with its ctx, for all that.
func TestFeedEndsThoughTheServerIsSilent(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	s := imitate(t)
	proxy := stores.NewRelay(t, s.addr)
	d := web(t, proxy.Addr)
	var ended time.Duration
	func() {
		begin := time.Now()
		for range d.Changes(t.Context()) {
			proxy.Cut()
			break
		}
		ended = time.Since(begin)
	}()
	if ended > 5*time.Second {
		t.Errorf("it took %v", ended)
	}
	proxy.Heal()
	var _ leaderelection.ChangeFeed = d
}

// The sessions that Open makes leave a connection that has died without a word.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, imitate(t).addr)
	feedtest.Abandons(t, opened(t, "rethinkdb://"+relay.Addr+"/leaderelection_test/elections/web"), relay.Swallow)
}

// The Example of package memory is a whole election.
func ExampleNewDecider() {
	const limit = 5 * time.Second // so that a server that does not answer leaves nothing behind
	session, err := r.Connect(r.ConnectOpts{Addresses: []string{"db-0:28015", "db-1:28015"}, ReadTimeout: limit, WriteTimeout: limit})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	config := leaderelection.Config{Decider: rethinkdb.NewDecider(session, "ops", "elections", "web", nil), LeaderID: "web-1"}
	log.Print(config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
