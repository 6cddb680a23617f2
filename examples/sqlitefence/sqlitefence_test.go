// Package sqlitefence_test holds the fence of fencesql to its promise on SQLite, by the driver that
// deciders/sql/sqlite uses: here, since nobody who imports fencesql is to link that.
package sqlitefence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencesql"
)

// journals are the ways in which SQLite keeps a transaction.
var journals = []string{"wal", "delete"}

// each runs a test in a new database of each kind. Open is a pool of connections to it, as of one
// process, whose transactions begin as immediate ones, as the dialect wants them.
func each(t *testing.T, test func(t *testing.T, open func() *sql.DB)) {
	for _, journal := range journals {
		t.Run(journal, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "db")
			test(t, func() *sql.DB {
				db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode("+journal+")")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() })
				return db
			})
		})
	}
}

func orders(n uint64) fence.Token {
	return fence.Token{Election: "orders", Number: leaderelection.ElectionNumber(n)}
}

func run(t *testing.T, db *sql.DB, text string, args ...any) int64 {
	t.Helper()
	r, err := db.ExecContext(t.Context(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func number(t *testing.T, db *sql.DB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func fences(t *testing.T, db *sql.DB) *fencesql.Table {
	t.Helper()
	table, err := fencesql.NewTable(fencesql.SQLite, "fences", nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds it
		if err := table.Create(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	run(t, db, "CREATE TABLE account (balance BIGINT NOT NULL)")
	run(t, db, "INSERT INTO account VALUES (0)")
	return table
}

func add(ctx context.Context, db *sql.DB, table *fencesql.Table, token fence.Token) error {
	return table.Do(ctx, db, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1")
		return err
	})
}

// One after another: what is older than the greatest is refused, and writes nothing.
func TestInTurn(t *testing.T) {
	each(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		table := fences(t, db)
		for _, c := range []struct {
			token fence.Token
			want  error
		}{
			{orders(2), nil}, {orders(2), nil}, {orders(1), fence.ErrStale}, {orders(5), nil}, {orders(4), fence.ErrStale}, {orders(0), fence.ErrNoToken},
			{fence.Token{Election: "Orders", Number: 1}, nil}, {fence.Token{Election: "orders ", Number: 1}, nil}, {fence.Token{Election: "o'ther", Number: 1}, nil},
		} {
			if err := add(t.Context(), db, table, c.token); !errors.Is(err, c.want) {
				t.Errorf("%v: %v, want %v", c.token, err, c.want)
			}
		}
		var stale *fence.StaleError
		if err := table.Raise(t.Context(), db, orders(3)); !errors.As(err, &stale) || stale.Greatest != 5 {
			t.Errorf("raised to less: %v", err)
		}
		own := errors.New("own")
		if err := table.Do(t.Context(), db, orders(5), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = 1000")
			return errors.Join(err, own)
		}); !errors.Is(err, own) {
			t.Errorf("act's error became %v", err)
		}
		if n := number(t, db, "SELECT balance FROM account"); n != 6 {
			t.Errorf("%d writes", n)
		}
	})
}

// A transaction of the old leadership is under way when the new leader comes, in a process of its
// own: the new one waits for it, and reads what it has written.
func TestTheNewLeaderWaits(t *testing.T) {
	each(t, func(t *testing.T, open func() *sql.DB) {
		db, others := open(), open()
		table := fences(t, db)
		var done atomic.Bool
		inside, goOn := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := table.Do(t.Context(), db, orders(10), func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = 100")
				close(inside)
				<-goOn
				done.Store(true)
				return err
			}); err != nil {
				t.Error(err)
			}
		})
		<-inside
		// Nobody comes between: SQLite has one writer at a time.
		impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := add(impatient, others, table, orders(11)); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("while the old one writes: %v", err)
		}
		wg.Go(func() {
			if err := table.Do(t.Context(), others, orders(11), func(tx *sql.Tx) error {
				var balance int
				err := tx.QueryRowContext(t.Context(), "SELECT balance FROM account").Scan(&balance)
				if balance != 100 || !done.Load() {
					t.Errorf("the new leader reads %d, the old one has ended: %v", balance, done.Load())
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		})
		close(goOn)
		wg.Wait()
		if err := add(t.Context(), db, table, orders(10)); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the old leader again: %v", err)
		}
	})
}

// Many processes at once, of later and later leaderships: after the first of one none of an older
// one is let in, and nobody ends in SQLITE_BUSY.
func TestAtOnce(t *testing.T) {
	each(t, func(t *testing.T, open func() *sql.DB) {
		table := fences(t, open())
		var greatest, admitted atomic.Int64
		var wg sync.WaitGroup
		for i := range 4 {
			db := open()
			wg.Go(func() {
				for n := range 10 {
					token := orders(uint64(100 + n + i%2))
					err := table.Do(t.Context(), db, token, func(*sql.Tx) error {
						if g := greatest.Load(); g > int64(token.Number) {
							return fmt.Errorf("%d is let in after %d", token.Number, g)
						}
						greatest.Store(int64(token.Number)) // one writer at a time
						admitted.Add(1)
						return nil
					})
					if err != nil && !errors.Is(err, fence.ErrStale) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if admitted.Load() < 11 || greatest.Load() != 110 {
			t.Errorf("%d admitted, up to %d", admitted.Load(), greatest.Load())
		}
	})
}

// A transaction of one's own.
func TestAdmit(t *testing.T) {
	each(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		table := fences(t, db)
		in := func(n uint64) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			return table.Admit(t.Context(), tx, orders(n))
		}
		if err := in(10); !errors.Is(err, fencesql.ErrNotRaised) {
			t.Errorf("before it was raised: %v", err)
		}
		if err := table.Raise(t.Context(), db, orders(11)); err != nil {
			t.Fatal(err)
		}
		if err := in(11); err != nil {
			t.Error(err)
		}
		if err := in(10); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the old leader: %v", err)
		}
	})
}

// Rows that are their own fences: by a condition, and by an Upsert, with many at once.
func TestRows(t *testing.T) {
	each(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		run(t, db, "CREATE TABLE stock (item BIGINT PRIMARY KEY, pieces BIGINT, fence BIGINT)")
		run(t, db, "INSERT INTO stock VALUES (0, 0, NULL)")
		update := "UPDATE stock SET pieces = pieces + 1, fence = ? WHERE item = 0 AND " + fencesql.Condition("fence", "?")
		for _, c := range []struct{ number, rows int64 }{{2, 1}, {1, 0}, {2, 1}, {3, 1}, {2, 0}} {
			if n := run(t, db, update, c.number, c.number); n != c.rows {
				t.Errorf("%d: %d rows, want %d", c.number, n, c.rows)
			}
		}
		u, err := fencesql.NewUpsert(fencesql.SQLite, "stock", []string{"item"}, []string{"pieces"}, "fence")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			number uint64
			want   error
		}{{2, nil}, {2, nil}, {1, fence.ErrStale}, {5, nil}, {4, fence.ErrStale}} {
			err := u.Exec(t.Context(), db, orders(c.number), 1, int64(c.number))
			var stale *fence.StaleError
			if !errors.Is(err, c.want) || errors.As(err, &stale) && stale.Greatest < 2 {
				t.Errorf("%d: %v, want %v", c.number, err, c.want)
			}
		}
		if n := number(t, db, "SELECT pieces FROM stock WHERE item = 1"); n != 5 {
			t.Errorf("%d pieces, want the newest leader's 5", n)
		}
		var wg sync.WaitGroup
		for n := uint64(1); n <= 8; n++ {
			db := open()
			wg.Go(func() {
				if err := u.Exec(t.Context(), db, orders(n), 2, int64(n)); err != nil && (!errors.Is(err, fence.ErrStale) || n == 8) {
					t.Errorf("%d: %v", n, err)
				}
			})
		}
		wg.Wait()
		if n, f := number(t, db, "SELECT pieces FROM stock WHERE item = 2"), number(t, db, "SELECT fence FROM stock WHERE item = 2"); n != 8 || f != 8 {
			t.Errorf("%d pieces and the fence %d, want those of the newest", n, f)
		}
		if err := u.Exec(t.Context(), db, orders(6), 1); err == nil || !strings.Contains(err.Error(), "item, pieces") {
			t.Errorf("a value is missing: %v", err)
		}
	})
}
