package rethinkdb_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
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
