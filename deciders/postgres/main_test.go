package postgres_test

import (
	"context"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

func TestMain(m *testing.M) {
	proctest.Main(postgres.Open)
	goleak.VerifyTestMain(m)
}

// pg is PostgreSQL, for the tests that all stores have.
var pg = storetest.Store[*postgres.Decider]{
	Open: postgres.Open,
	Start: func(t testing.TB) (string, storetest.Server) {
		s := stores.Postgres(t)
		return s.Addr, s
	},
	Address: "postgres://postgres@$addr/postgres?sslmode=disable&create=true&election=$election",
}

// opened returns the election "e" of a server, with more in its address.
func opened(t testing.TB, addr string, more string) *postgres.Decider {
	t.Helper()
	return pg.Opened(t, pg.At(addr, "e")+more)
}

// pool returns a pool of its own, prepared, closed at the end of the test.
func pool(t testing.TB, addr string, more ...string) *pgxpool.Pool {
	t.Helper()
	return adjusted(t, addr, strings.Join(more, "&"), postgres.Prepare)
}

func adjusted(t testing.TB, addr, more string, adjust func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig("postgres://postgres@" + addr + "/postgres?sslmode=disable&pool_max_conns=4&" + more)
	if err != nil {
		t.Fatal(err)
	}
	adjust(config)
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func exec(t testing.TB, p *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := p.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// value is a query's only answer.
func value[T any](t testing.TB, p *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	if err := p.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

var create = &postgres.Options{CreateTable: true}

// decider returns the election "e" in the usual table, which it makes if it is missing.
func decider(db postgres.DB) *postgres.Decider {
	return postgres.NewDecider(db, "leaderelection", "e", create)
}

func TestConformance(t *testing.T) {
	server := stores.Postgres(t)
	for name, more := range map[string]string{
		"default":                    "",
		"simple protocol":            "&default_query_exec_mode=simple_protocol",
		"serializable, Tokyo's time": "&options=-c%20default_transaction_isolation%3Dserializable%20-c%20timezone%3DAsia/Tokyo",
	} {
		s := pg
		s.Address += more
		t.Run(name, func(t *testing.T) { decidertest.Run(t, s.Elections(server.Addr), nil) })
	}
}

func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	pg.Processes(t)
}
func TestFaults(t *testing.T)              { pg.Faults(t) }
func TestAbandonedConnection(t *testing.T) { pg.Abandons(t, "&pool_min_conns=3") }

// After a fail-over behind an address that stays, the old primary answers on the connections that
// there are, and takes no writes. Both the pool that Open makes and a caller's leave it.
func TestReadOnlyConnectionLeavesThePool(t *testing.T) {
	old, primary := stores.Postgres(t), stores.Postgres(t)
	relay := stores.NewRelay(t, old.Addr)
	deciders := map[string]*postgres.Decider{
		"open":   pg.Opened(t, pg.At(relay.Addr, "open")),
		"caller": decider(pool(t, relay.Addr)),
	}
	tokens := map[string]leaderelection.LeaderToken{}
	for name, d := range deciders {
		tokens[name] = feedtest.Write(t, d, 1, nil)
	}
	feedtest.Read(t, decider(pool(t, primary.Addr))) // makes the table
	admin := pool(t, old.Addr)
	exec(t, admin, "ALTER SYSTEM SET default_transaction_read_only = on")
	exec(t, admin, "SELECT pg_reload_conf()")
	relay.Lead(primary.Addr)
	for name, d := range deciders {
		t.Run(name, func(t *testing.T) {
			var err error
			feedtest.Eventually(t, "the old primary takes no writes", func() bool { // its sessions hear of it by and by
				var next leaderelection.LeaderToken
				if next, err = d.WriteEntry(t.Context(), feedtest.State(2, tokens[name])); err == nil {
					tokens[name] = next
				}
				return err != nil
			})
			feedtest.Passing(t, err, "25006")
			feedtest.Reads(t, d, 0)
			feedtest.Write(t, d, 3, nil)
		})
	}
}

// However long writes hang at a row that somebody has locked, the server ends most of a candidate's
// sessions. The cancellation of others is on its way: the client asks for it over another connection.
func TestSessionsAreBounded(t *testing.T) {
	addr := stores.Postgres(t).Addr
	other := pool(t, addr)
	storetest.Bounded(t, opened(t, addr, "&application_name=candidate"), 40, func() func() {
		tx, err := other.Begin(t.Context())
		if err == nil {
			_, err = tx.Exec(t.Context(), "SELECT * FROM leaderelection FOR UPDATE")
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() { _ = tx.Rollback(t.Context()) }
	}, func() int {
		return value[int](t, other, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'candidate'")
	})
}

// Of all processes that run this, one at a time does the job.
func Example() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	decider := postgres.NewDecider(pool, "leaderelection", "nightly", &postgres.Options{CreateTable: true})
	log.Print(leaderelection.Config{Decider: decider, LeaderID: "web-1"}.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
