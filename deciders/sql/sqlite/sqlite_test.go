package sqlite_test

import (
	"database/sql"
	"log"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/deciders/sql/sqlite"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(racerEnv); path != "" {
		if err := racer(path); err != nil {
			log.Fatal(err)
		}
		return
	}
	proctest.Main(sqlite.Open)
	goleak.VerifyTestMain(m)
}

// pool opens the database at path, and closes it at the end of the test.
func pool(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sqlite.NewDB(path, &sqlite.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

var create = &lesql.Options{CreateTable: true}

// journals are the modes in which a database may be.
var journals = []string{"wal", "delete", "truncate"}

// database makes an empty one in a mode.
func database(t testing.TB, journal string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "app ?.db")
	exec(t, pool(t, path), "PRAGMA journal_mode = "+journal)
	return path
}

func exec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func TestConformance(t *testing.T) {
	for _, journal := range journals {
		t.Run(journal, func(t *testing.T) {
			if testing.Short() && journal != journals[0] {
				t.Skip("nightly: the suite once more")
			}
			decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
				path := database(t, journal)
				return func() leaderelection.RaceDecider {
					return lesql.NewDecider(pool(t, path), sqlite.Dialect(), "leaderelection", "e", create)
				}
			}, nil)
		})
	}
}

// Three candidates in processes of their own: one is killed, one stopped past its term.
func TestProcesses(t *testing.T) {
	proctest.Run(t, proctest.Options{Address: "sqlite://" + filepath.Join(t.TempDir(), "app.db") + "?election=e&create=true"})
}
