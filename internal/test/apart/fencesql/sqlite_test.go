package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencesql"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

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
			atOnce(t, db, table)
			condition(t, s, db)
		},
		"names": names, "upsert": upsert,
	} {
		t.Run(what, func(t *testing.T) { onSQLite(t, test) })
	}
}

// A transaction of the old leadership is under way when the new leader comes, in a process of its
// own: the new one waits for it, and reads what it has written.
func TestSQLiteHasOneWriter(t *testing.T) {
	onSQLite(t, func(t *testing.T, s server) {
		db, others, table := s.open(t), s.open(t), s.table(t, "fences", nil)
		account(t, db)
		var done atomic.Bool
		inside, goOn := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := table.Do(t.Context(), db, fencetest.Orders(10), func(tx *sql.Tx) error {
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
		if err := add(impatient, others, table, fencetest.Orders(11), "1"); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("while the old one writes: %v", err)
		}
		wg.Go(func() {
			if err := table.Do(t.Context(), others, fencetest.Orders(11), func(tx *sql.Tx) error {
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
		if err := add(t.Context(), db, table, fencetest.Orders(10), "1"); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the old leader again: %v", err)
		}
	})
}

// A transaction that the caller begins. There are never two at once.
func TestCheckOnSQLite(t *testing.T) {
	onSQLite(t, func(t *testing.T, s server) {
		db, table := s.open(t), s.table(t, "fences", nil)
		in := func(n uint64) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			return table.Check(t.Context(), tx, fencetest.Orders(n))
		}
		if err := in(10); !errors.Is(err, fencesql.ErrNotRaised) {
			t.Errorf("before it was raised: %v", err)
		}
		if err := table.Raise(t.Context(), db, fencetest.Orders(11)); err != nil {
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
