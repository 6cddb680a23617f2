package mysql_test

import (
	"database/sql"
	"io"
	"log"
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

func exec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// opened returns the election at an address, closed at the end of the test.
func opened(t testing.TB, address string) *lesql.Decider {
	t.Helper()
	return feedtest.Opened(t, mysql.Open, address)
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
					return lesql.NewDecider(pool(t, c), mysql.Dialect(), "leaderelection", election, create)
				}
			}, nil)
		})
	}
}

// server is config without a database.
func server(addr string) *driver.Config {
	c := config(addr)
	c.DBName = ""
	return c
}
