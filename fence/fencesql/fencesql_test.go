package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencesql"
	"github.com/c8e606e4/leaderelection/fence/internal/fencetest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// postgres starts an empty server and returns a pool of connections to it.
func postgres(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", "postgres://postgres@"+stores.Postgres(t).Addr+"/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func exec1(t testing.TB, db *sql.DB, query string, args ...any) int64 {
	t.Helper()
	r, err := db.ExecContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPostgreSQL(t *testing.T) {
	db := postgres(t)
	exec1(t, db, "CREATE SCHEMA s")
	table, err := fencesql.NewTable(fencesql.PostgreSQL, "s.fences")
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Do(t.Context(), db, fencetest.Orders(1), func(*sql.Tx) error { return nil }); err == nil {
		t.Error("no table, and no error")
	}
	for range 2 {
		if err := table.Create(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	exec1(t, db, "CREATE TABLE log (number BIGINT, fence BIGINT)")
	t.Run("in turn", func(t *testing.T) { inTurn(t, db, table) })
	t.Run("the late one waits, then is refused", func(t *testing.T) { late(t, db, table) })
	t.Run("at once", func(t *testing.T) { atOnce(t, db, table) })
	t.Run("condition", func(t *testing.T) { condition(t, db) })
}

// write notes the number in the log, under the fence.
func write(ctx context.Context, db *sql.DB, table *fencesql.Table, token fence.Token) error {
	return table.Do(ctx, db, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO log (number) VALUES ($1)", int64(token.Number))
		return err
	})
}

func inTurn(t *testing.T, db *sql.DB, table *fencesql.Table) {
	own := errors.New("own")
	if err := table.Do(t.Context(), db, fencetest.Orders(9), func(*sql.Tx) error { return own }); err != own {
		t.Errorf("act's error became %v", err)
	} // and was rolled back, the fence with it
	for _, c := range []struct {
		token fence.Token
		want  error
	}{
		{fencetest.Orders(2), nil}, {fencetest.Orders(2), nil}, {fencetest.Orders(1), fence.ErrStale}, {fencetest.Orders(5), nil}, {fencetest.Orders(4), fence.ErrStale}, {fencetest.Orders(5), nil},
		{fencetest.Orders(0), fence.ErrNoToken}, {fencetest.Orders(math.MaxInt64 + 1), fence.ErrMalformed}, {fence.Token{Election: "o'ther", Number: 1}, nil},
	} {
		if err := write(t.Context(), db, table, c.token); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.token, err, c.want)
		}
	}
	var stale *fence.StaleError
	if err := write(t.Context(), db, table, fencetest.Orders(3)); !errors.As(err, &stale) || stale.Greatest != 5 {
		t.Errorf("%v", err)
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM log").Scan(&n); err != nil || n != 5 {
		t.Errorf("%d writes, %v", n, err)
	}
}

// A transaction of the old reign is under way when the new leader comes: the new
// one waits for it, and whatever the old one begins later is refused.
func late(t *testing.T, db *sql.DB, table *fencesql.Table) {
	inside, goOn := make(chan struct{}), make(chan struct{})
	var order []string
	var mu sync.Mutex
	note := func(s string) { mu.Lock(); defer mu.Unlock(); order = append(order, s) }
	var wg sync.WaitGroup
	wg.Go(func() {
		err := table.Do(t.Context(), db, fencetest.Orders(10), func(*sql.Tx) error {
			close(inside)
			<-goOn
			note("old")
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-inside
	wg.Go(func() {
		if err := table.Do(t.Context(), db, fencetest.Orders(11), func(*sql.Tx) error { note("new"); return nil }); err != nil {
			t.Error(err)
		}
	})
	for waiting := 0; waiting == 0; { // the new one waits for the old one's lock
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting); err != nil {
			t.Error(err)
			break
		}
	}
	close(goOn)
	wg.Wait()
	if !slices.Equal(order, []string{"old", "new"}) {
		t.Errorf("order %v", order)
	}
	if err := write(t.Context(), db, table, fencetest.Orders(10)); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the old leader again: %v", err)
	}
}

// Many at once, of a reign that nobody has seen yet, and of later and later ones:
// nobody is deadlocked, and the log never goes back.
func atOnce(t *testing.T, db *sql.DB, table *fencesql.Table) {
	exec1(t, db, "TRUNCATE log")
	exec1(t, db, "ALTER TABLE log ADD COLUMN id BIGSERIAL")
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; n < 10; n++ {
				switch err := write(t.Context(), db, table, fencetest.Orders(uint64(100+n+i%2))); {
				case err == nil:
					admitted.Add(1)
				case errors.Is(err, fence.ErrStale):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var back int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM (SELECT number, max(number) OVER (ORDER BY id) AS before FROM log) x WHERE number < before").Scan(&back); err != nil || back != 0 {
		t.Errorf("%d writes went back, %v", back, err)
	}
	if admitted.Load() < 11 || admitted.Load()+refused.Load() != 80 {
		t.Errorf("%d admitted, %d refused", admitted.Load(), refused.Load())
	}
}

func condition(t *testing.T, db *sql.DB) {
	exec1(t, db, "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT, fence BIGINT)")
	exec1(t, db, "INSERT INTO accounts VALUES (1, 0, NULL)")
	update := "UPDATE accounts SET balance = balance + 1, fence = $1 WHERE id = 1 AND " + fencesql.Condition("fence", "$1")
	for _, c := range []struct{ number, rows int64 }{{2, 1}, {1, 0}, {2, 1}, {3, 1}, {2, 0}} {
		if n := exec1(t, db, update, c.number); n != c.rows {
			t.Errorf("%d: %d rows, want %d", c.number, n, c.rows)
		}
	}
}

func TestNewTableRefuses(t *testing.T) {
	for _, name := range []string{"", "a b", "a;drop table x", "1a", "a.b.c", `"a"`, "ä"} {
		if _, err := fencesql.NewTable(fencesql.PostgreSQL, name); err == nil {
			t.Errorf("%q is taken for a table", name)
		}
	}
	if _, err := fencesql.NewTable(fencesql.Dialect{}, "fences"); err == nil {
		t.Error("the zero Dialect is taken")
	}
}
