package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(postgres.Open)
	goleak.VerifyTestMain(m)
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *postgres.Decider {
	t.Helper()
	return feedtest.Opened(t, postgres.Open, address)
}

// pool returns a pool of its own, prepared, closed at the end of the test.
func pool(t testing.TB, addr string, more ...string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig("postgres://postgres@" + addr + "/postgres?sslmode=disable&pool_max_conns=4&" + strings.Join(more, "&"))
	if err != nil {
		t.Fatal(err)
	}
	postgres.Prepare(config)
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

var create = &postgres.Options{CreateTable: true}

// elections returns what makes an election after the other, each handle with a pool
// of its own.
func elections(addr string, more ...string) func(t testing.TB) func() leaderelection.RaceDecider {
	return func(t testing.TB) func() leaderelection.RaceDecider {
		name := feedtest.Unique()
		return func() leaderelection.RaceDecider {
			return postgres.NewDecider(pool(t, addr, more...), "leaderelection", name, create)
		}
	}
}

func TestConformance(t *testing.T) {
	server := stores.Postgres(t)
	for name, more := range map[string]string{
		"default":         "",
		"simple protocol": "default_query_exec_mode=simple_protocol",
		"serializable":    "options=-c%20default_transaction_isolation%3Dserializable",
	} {
		t.Run(name, func(t *testing.T) { decidertest.Run(t, elections(server.Addr, more), nil) })
	}
}

func TestCommitTS(t *testing.T) {
	d := postgres.NewDecider(pool(t, stores.Postgres(t).Addr, "options=-c%20timezone%3DAsia/Tokyo"), "leaderelection", "e", create)
	token := feedtest.Write(t, d, 1, nil)
	if age := time.Since(token.CommitTS()); age.Abs() > time.Minute {
		t.Errorf("CommitTS is %v from now", age)
	}
	if feedtest.Read(t, d).Token != token {
		t.Error("the token read is another than the one written")
	}
}

// Three candidates in processes of their own: one is killed, one stopped past its
// term, one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	addr := stores.Postgres(t).Addr
	proctest.Run(t, proctest.Options{Address: "postgres://postgres@" + addr + "/postgres?sslmode=disable&election=e&create=true", Upstream: addr})
}

// Whatever befalls the leader's connections for a while, it keeps its leadership.
func TestFaults(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	addr := stores.Postgres(t).Addr
	proxy := stores.NewRelay(t, addr)
	leader := opened(t, "postgres://postgres@"+proxy.Addr+"/postgres?sslmode=disable&election=e&create=true")
	proctest.Faults(t, leader, postgres.NewDecider(pool(t, addr), "leaderelection", "e", create), proxy)
}

// The pool that Open makes leaves all its connections that have died without a word, and not only
// that of the call.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, stores.Postgres(t).Addr)
	d := opened(t, "postgres://postgres@"+relay.Addr+"/postgres?sslmode=disable&pool_min_conns=3&election=e&create=true")
	feedtest.Read(t, d) // makes the table
	feedtest.Abandons(t, d, relay.Swallow)
}

// After a fail-over behind an address that stays, the old primary answers on the connections that
// there are, and takes no writes. Both the pool that Open makes and a caller's leave it.
func TestReadOnlyConnectionLeavesThePool(t *testing.T) {
	old, primary := stores.Postgres(t), stores.Postgres(t)
	relay := stores.NewRelay(t, old.Addr)
	deciders := map[string]*postgres.Decider{
		"open":   opened(t, "postgres://postgres@"+relay.Addr+"/postgres?sslmode=disable&election=open&create=true"),
		"caller": postgres.NewDecider(pool(t, relay.Addr), "leaderelection", "caller", create),
	}
	tokens := map[string]leaderelection.LeaderToken{}
	for name, d := range deciders {
		tokens[name] = feedtest.Write(t, d, 1, nil)
	}
	feedtest.Read(t, postgres.NewDecider(pool(t, primary.Addr), "leaderelection", "any", create)) // makes the table
	admin := pool(t, old.Addr)
	exec(t, admin, "ALTER SYSTEM SET default_transaction_read_only = on")
	exec(t, admin, "SELECT pg_reload_conf()")
	relay.Lead(primary.Addr)
	for name, d := range deciders {
		t.Run(name, func(t *testing.T) {
			at, err := tokens[name], error(nil)
			feedtest.Eventually(t, "the old primary takes no writes", func() bool { // its sessions hear of it by and by
				if next, refused := d.WriteEntry(t.Context(), feedtest.State(2, at)); refused == nil {
					at = next
				} else {
					err = refused
				}
				return err != nil
			})
			feedtest.Passing(t, err, "25006")
			feedtest.Reads(t, d, 0)
			feedtest.Write(t, d, 3, nil)
		})
	}
}

// However long writes hang at a row that somebody has locked, and however many calls are given up
// meanwhile, the server ends most of a candidate's sessions. As many calls as a term of 15 s has in ten
// minutes.
func TestSessionsAreBounded(t *testing.T) {
	const calls, most = 160, 40 // whose cancellation is on its way: the client asks for it over another connection
	server := stores.Postgres(t)
	d := opened(t, "postgres://postgres@"+server.Addr+"/postgres?sslmode=disable&create=true&election=e&application_name=candidate")
	token := feedtest.Write(t, d, 1, nil)
	other := pool(t, server.Addr)
	tx, err := other.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "SELECT * FROM leaderelection FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	failed := 0
	for i := range calls {
		if _, err := d.WriteEntry(within(t, 20*time.Millisecond), feedtest.State(2, token)); err != nil {
			failed++
		}
		var n int
		if err := other.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'candidate'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > most {
			t.Fatalf("after %d calls %d sessions are open", i+1, n)
		}
	}
	if failed < calls {
		t.Errorf("%d of %d writes failed: do they hang?", failed, calls)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := feedtest.Read(t, d)
	feedtest.Write(t, d, uint64(e.ElectionNumber)+1, e.Token)
}
