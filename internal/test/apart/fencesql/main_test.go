package fencesql_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencesql"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // it tells of connections that are cut here
	goleak.VerifyTestMain(m)
}

// server is a database to run the tests on.
type server struct {
	dialect fencesql.Dialect
	driver  string
	address string
	waiting string // how many sessions wait for a lock
}

// Each test runs on each server, once at each isolation level that its transactions may
// have by default, in a database of its own.
func TestFences(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) func(database, level string) server{
		"PostgreSQL": func(t *testing.T) func(database, level string) server {
			addr := stores.Postgres(t).Addr
			return func(database, level string) server {
				return server{fencesql.PostgreSQL(), "pgx", "postgres://postgres@" + addr + "/" + database + "?sslmode=disable&default_transaction_isolation=" + url.PathEscape(level),
					"SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT granted AND datname = current_database()"}
			}
		},
		"MariaDB": func(t *testing.T) func(database, level string) server {
			addr := stores.MariaDB(t).Addr
			return func(database, level string) server {
				c := mysql.NewConfig()
				c.User, c.Net, c.Addr, c.DBName = "root", "tcp", addr, database
				c.Params = map[string]string{"tx_isolation": "'" + strings.ToUpper(strings.ReplaceAll(level, " ", "-")) + "'"}
				return server{fencesql.MySQL(), "mysql", c.FormatDSN(),
					"SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_row_lock_current_waits'"}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := start(t)
			for i, level := range []string{"read committed", "repeatable read", "serializable"} {
				for what, test := range map[string]func(t *testing.T, s server){
					"table": tables, "admit": admit, "names": names, "upsert": upsert, "unfit": unfit, "skipped": skipped, "vanished leader": vanishedLeader, "idle timeout": idleTimeout, "nobody overtakes": nobodyOvertakes,
				} {
					t.Run(level+"/"+what, func(t *testing.T) {
						database := fmt.Sprintf("level%d_%s", i, strings.ReplaceAll(what, " ", "_"))
						first := map[string]string{"PostgreSQL": "postgres", "MariaDB": "test"}[name]
						storetest.Exec(t, at(first, level).open(t), "CREATE DATABASE "+database)
						test(t, at(database, level))
					})
				}
			}
		})
	}
}

// open returns a pool of connections, as of one process.
func (s server) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(s.driver, s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// named returns a table of fences that may not be there.
func (s server) named(t testing.TB, name string, opts *fencesql.Options) *fencesql.Table {
	t.Helper()
	table, err := fencesql.NewTable(s.dialect, name, opts)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// table makes a table of fences.
func (s server) table(t testing.TB, name string, opts *fencesql.Options) *fencesql.Table {
	t.Helper()
	table := s.named(t, name, opts)
	if err := table.Create(t.Context(), s.open(t)); err != nil {
		t.Fatal(err)
	}
	return table
}

// upsert returns one whose column of the fence is fence.
func (s server) upsert(t testing.TB, table string, key, columns []string) *fencesql.Upsert {
	t.Helper()
	u, err := fencesql.NewUpsert(s.dialect, table, key, columns, "fence")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// number is a query's only answer.
func number(t testing.TB, db *sql.DB, query string) int64 {
	t.Helper()
	return storetest.Value[int64](t, db, query)
}

// does fails the test if a leadership of the election "orders" cannot act.
func does(t testing.TB, db *sql.DB, table *fencesql.Table, number uint64, act func(tx *sql.Tx) error) {
	t.Helper()
	if err := table.Do(t.Context(), db, fencetest.Orders(number), act); err != nil {
		t.Errorf("leadership %d: %v", number, err)
	}
}

// add is a write under the fence: it adds to the only row of account.
func add(ctx context.Context, db *sql.DB, table *fencesql.Table, token fence.Token, amount string) error {
	return table.Do(ctx, db, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + "+amount)
		return err
	})
}

// account makes the table of which add writes the only row.
func account(t testing.TB, db *sql.DB) {
	t.Helper()
	storetest.Exec(t, db, "CREATE TABLE account (balance BIGINT NOT NULL)")
	storetest.Exec(t, db, "INSERT INTO account VALUES (0)")
}

// onSQLite runs a test in a new database for each way to keep a transaction. Transactions begin as
// immediate ones, as the dialect wants them.
func onSQLite(t *testing.T, test func(t *testing.T, s server)) {
	for _, journal := range []string{"wal", "delete"} {
		t.Run(journal, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "db")
			test(t, server{dialect: fencesql.SQLite(), driver: "sqlite", address: "file:" + file + "?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(" + journal + ")"})
		})
	}
}

// What holds on servers holds here.
func TestSQLite(t *testing.T) {
	for what, test := range map[string]func(t *testing.T, s server){
		"table": func(t *testing.T, s server) {
			db, table := s.open(t), s.table(t, "fences", nil)
			account(t, db)
			inTurn(t, db, table, "fences")
			late(t, s, table)
			atOnce(t, db, table)
			condition(t, s, db)
		},
		"names": names, "upsert": upsert,
	} {
		t.Run(what, func(t *testing.T) { onSQLite(t, test) })
	}
}
