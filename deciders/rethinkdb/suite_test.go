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
	p "gopkg.in/rethinkdb/rethinkdb-go.v6/ql2"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

func TestMain(m *testing.M) {
	proctest.Main(rethinkdb.Open)
	// The driver leaves this behind by itself if it cannot connect.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/hailocab/go-hostpool.(*epsilonGreedyHostPool).epsilonGreedyDecay"))
}

const (
	database = "leaderelection_test"
	table    = "elections"
)

// store is the imitation, for the tests that all stores have.
var store = storetest.Store[*rethinkdb.Decider]{
	Open: rethinkdb.Open,
	Start: func(t testing.TB) (string, storetest.Server) {
		s := imitate(t)
		return s.Addr, s
	},
	Address: "rethinkdb://$addr/leaderelection_test/elections/$election",
}

// server is host:port of a real RethinkDB to run the tests on as well, if one is to
// be had. They use the database leaderelection_test.
var server = os.Getenv("LEADERELECTION_TEST_RETHINKDB")

// everyServer runs f with the address of the imitation, and of a real server if there
// is one.
func everyServer(t *testing.T, f func(t *testing.T, addr string)) {
	t.Run("imitation", func(t *testing.T) { f(t, imitate(t).Addr) })
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

// web is the election that most tests hold, by a session of its own.
func web(t testing.TB, addr string) *rethinkdb.Decider {
	t.Helper()
	return rethinkdb.NewDecider(connect(t, addr), database, table, "web", nil)
}

func TestConformance(t *testing.T) {
	everyServer(t, func(t *testing.T, addr string) { decidertest.Run(t, store.Elections(addr), nil) })
}

func TestHandover(t *testing.T) {
	everyServer(t, func(t *testing.T, addr string) { feedtest.Handover(t, store.Elections(addr)) })
}

func TestIdle(t *testing.T) {
	s := imitate(t)
	// Each replace is read back, which is a get.
	feedtest.Idle(t, store.Elections(s.Addr), func() int { return s.count("get") + s.count("changes") })
}

func TestNews(t *testing.T)                { store.News(t, nil) }
func TestOutage(t *testing.T)              { store.Outage(t) }
func TestAbandonedConnection(t *testing.T) { store.Abandons(t, "") }

// Three candidates in processes of their own, on the imitation in this one: one is killed,
// one stopped past its term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	everyServer(t, func(t *testing.T, addr string) {
		proctest.Run(t, proctest.Options{Address: store.At(addr, feedtest.Unique()) + "?timeout=1s", Upstream: addr})
	})
}

// What others do to the row by hand is told, too.
func TestChangesByHand(t *testing.T) {
	s, d := imitated(t)
	feed := feedtest.Follow(t, d)
	feedtest.Write(t, d, 1, feedtest.Number(t, feed, 0).Token)
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

// A feed fails if the server ends it, as when a replica goes away, or says that it has left changes out.
func TestFeedEnds(t *testing.T) {
	for says, end := range map[string]func(s *imitation){
		"unavailable": func(s *imitation) {
			s.end(&refusal{p.Response_OP_FAILED, "Changefeed aborted (unavailable)."})
		},
		"ended": func(s *imitation) { s.end(nil) },
		"skipped 3": func(s *imitation) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.tell("web", map[string]any{"error": "Changefeed cache over array size limit, skipped 3 elements."})
		},
	} {
		t.Run(says, func(t *testing.T) {
			s, d := imitated(t)
			feed := feedtest.Follow(t, d)
			feedtest.Number(t, feed, 0)
			end(s)
			feedtest.Passing(t, feedtest.Next(t, feed).Err, says, `"web"`)
		})
	}
}

// A feed whose server has fallen silent ends with its ctx, for all that.
func TestFeedEndsThoughTheServerIsSilent(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	s, d := imitated(t)
	begin := time.Now()
	for range d.Changes(t.Context()) {
		s.Cut()
		break
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	s.Heal()
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
