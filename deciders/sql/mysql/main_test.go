package mysql_test

import (
	"context"
	"database/sql"
	"io"
	"log"
	"os"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/deciders/sql/mysql"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

func TestMain(m *testing.M) {
	_ = driver.SetLogger(log.New(io.Discard, "", 0)) // it tells of connections that are cut here
	proctest.Main(mysql.Open)
	goleak.VerifyTestMain(m)
}

// config is that of a connection to a server that the tests have started.
func config(addr string) *driver.Config {
	c := driver.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "tcp", addr, "test"
	return c
}

// pool returns a pool of its own, closed at the end of the test.
func pool(t testing.TB, c *driver.Config) *sql.DB {
	t.Helper()
	db, err := mysql.NewDB(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// my is MariaDB, for the tests that all stores have.
var my = storetest.Store[*lesql.Decider]{
	Open:    mysql.Open,
	Start:   func(t testing.TB) (string, storetest.Server) { return stores.MariaDB(t).Addr, nil },
	Address: "mysql://root@$addr/test?create=true&election=$election",
}

// decider returns an election in the usual table, and maker one that makes the table if it is missing.
func decider(db *sql.DB, election string) *lesql.Decider {
	return lesql.NewDecider(db, mysql.Dialect(), "leaderelection", election, nil)
}

func maker(db *sql.DB, election string) *lesql.Decider {
	return lesql.NewDecider(db, mysql.Dialect(), "leaderelection", election, create)
}

var create = &lesql.Options{CreateTable: true}

func TestConformance(t *testing.T) {
	addr := stores.MariaDB(t).Addr
	for name, adjust := range map[string]func(*driver.Config){
		"default": func(*driver.Config) {},
		"found rows, uncommitted reads": func(c *driver.Config) {
			c.ClientFoundRows, c.Params = true, map[string]string{"tx_isolation": "'READ-UNCOMMITTED'"}
		},
		"serializable, latin1, Tokyo's time": func(c *driver.Config) {
			c.Params = map[string]string{"tx_isolation": "'SERIALIZABLE'", "time_zone": "'+09:00'", "sql_mode": "'NO_BACKSLASH_ESCAPES'"}
			c.Collation = "latin1_swedish_ci"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
				election := feedtest.Unique()
				return func() leaderelection.RaceDecider {
					c := config(addr)
					adjust(c)
					return maker(pool(t, c), election)
				}
			}, nil)
		})
	}
}

func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	my.Processes(t)
}
func TestFaults(t *testing.T)              { my.Faults(t) }
func TestAbandonedConnection(t *testing.T) { my.Abandons(t, "") }

// After a fail-over behind an address that stays, the old primary answers on the connections that
// there are, and takes no writes. Both the pool that NewDB makes and a caller's leave it.
func TestReadOnlyConnectionLeavesThePool(t *testing.T) {
	old, primary := stores.MariaDB(t), stores.MariaDB(t)
	relay := stores.NewRelay(t, old.Addr)
	for _, db := range []*sql.DB{pool(t, config(old.Addr)), pool(t, config(primary.Addr))} {
		storetest.Exec(t, db, "CREATE USER app IDENTIFIED BY ''") // root may write to what is read-only
		storetest.Exec(t, db, "GRANT SELECT, INSERT, UPDATE, CREATE ON test.* TO app")
	}
	c := config(relay.Addr)
	c.User = "app"
	callers, err := sql.Open("mysql", c.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = callers.Close() })
	for name, db := range map[string]*sql.DB{"NewDB": pool(t, c), "caller": callers} {
		t.Run(name, func(t *testing.T) {
			d := maker(db, name)
			admin := pool(t, config(old.Addr))
			relay.Lead(old.Addr)
			at := feedtest.Write(t, d, 1, nil)
			feedtest.Read(t, maker(pool(t, config(primary.Addr)), name)) // makes the table
			storetest.Exec(t, admin, "SET GLOBAL read_only = 1")
			defer storetest.Exec(t, admin, "SET GLOBAL read_only = 0")
			relay.Lead(primary.Addr)
			if _, err := d.WriteEntry(t.Context(), feedtest.State(2, at)); err == nil {
				t.Fatal("the old primary has taken a write")
			}
			feedtest.Reads(t, d, 0)
			feedtest.Write(t, d, 3, nil)
		})
	}
}

// Of all processes that run this, one at a time does the job.
func Example() {
	config, err := driver.ParseDSN(os.Getenv("MYSQL_DSN")) // user:password@tcp(db:3306)/app
	if err != nil {
		log.Fatal(err)
	}
	db, err := mysql.NewDB(config)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	decider := lesql.NewDecider(db, mysql.Dialect(), "leaderelection", "nightly", &lesql.Options{CreateTable: true})
	log.Print(leaderelection.Config{Decider: decider, LeaderID: "web-1"}.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
