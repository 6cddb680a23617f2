package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencesql"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

// A leader that has vanished in the middle of a transaction holds up the next for no
// longer than it may be idle, and writes nothing.
func vanishedLeader(t *testing.T, s server) {
	const idle = 2 * time.Second
	table := s.table(t, "fences", &fencesql.Options{IdleTimeout: idle})
	gone, db := s.open(t), s.open(t)
	account(t, db)
	if err := table.Raise(t.Context(), gone, fencetest.Orders(1)); err != nil {
		t.Fatal(err)
	}
	tx, err := gone.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := table.Check(t.Context(), tx, fencetest.Orders(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = 100"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 5*idle)
	defer cancel()
	if err := add(ctx, db, table, fencetest.Orders(2), "1"); err != nil {
		t.Errorf("the new leader: %v", err)
	}
	if took := time.Since(began); took < idle/2 {
		t.Errorf("the new leader writes after %v", took)
	}
	if err := tx.Commit(); err == nil {
		t.Error("the vanished leader has committed")
	}
	if n := number(t, db, "SELECT balance FROM account"); n != 1 {
		t.Errorf("the balance is %d, want 1", n)
	}
}

// A session's own limit stays if it is lower; outside of transactions nothing changes in
// PostgreSQL, and a connection that MariaDB has closed meanwhile is replaced.
func idleTimeout(t *testing.T, s server) {
	show := map[string]string{"pgx": "SELECT extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval)::int8", "mysql": "SELECT @@SESSION.wait_timeout"}[s.driver]
	set := map[string]string{"pgx": "SET idle_in_transaction_session_timeout = '1min'", "mysql": "SET SESSION wait_timeout = 60"}[s.driver]
	unset := map[string]string{"pgx": "SET idle_in_transaction_session_timeout = 0", "mysql": "SET SESSION wait_timeout = 1000"}[s.driver]
	for _, c := range []struct {
		idle   time.Duration
		before string
		want   int64
	}{{0, unset, 10}, {0, set, 10}, {time.Hour, set, 60}, {time.Hour, unset, map[string]int64{"pgx": 3600, "mysql": 1000}[s.driver]}, {-1, set, 60}, {1500 * time.Millisecond, unset, 2}} {
		db := s.open(t)
		db.SetMaxOpenConns(1)
		exec1(t, db, c.before)
		table := s.table(t, "fences", &fencesql.Options{IdleTimeout: c.idle})
		if err := table.Do(t.Context(), db, fencetest.Orders(1), func(tx *sql.Tx) error {
			var got int64
			if err := tx.QueryRowContext(t.Context(), show).Scan(&got); err != nil || got != c.want {
				t.Errorf("IdleTimeout %v after %q: %d s, %v; want %d", c.idle, c.before, got, err, c.want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if s.driver == "mysql" && c.idle == 1500*time.Millisecond {
			closed := time.NewTimer(3 * time.Second)
			<-closed.C
			if err := table.Do(t.Context(), db, fencetest.Orders(1), func(*sql.Tx) error { return nil }); err != nil {
				t.Errorf("after the server has closed the connection: %v", err)
			}
		}
		_ = db.Close()
	}
}

// However many of the old leader's transactions there are, they do not keep the new one
// waiting: those that begin after it queue behind it, or are refused at once.
func nobodyOvertakes(t *testing.T, s server) {
	const workers = 8
	table := s.table(t, "fences", nil)
	db, other := s.open(t), s.open(t)
	inside, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := table.Do(t.Context(), db, fencetest.Orders(1), func(*sql.Tx) error {
			close(inside)
			<-goOn
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-inside
	wg.Go(func() {
		if err := table.Raise(t.Context(), other, fencetest.Orders(2)); err != nil {
			t.Error(err)
		}
	})
	feedtest.Eventually(t, "the new leader waits", func() bool { return number(t, other, s.waiting) == 1 })
	if s.driver == "pgx" { // nor does anybody hold it up who may not write to the table
		if n := number(t, other, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != 0 {
			t.Errorf("%d locks that anybody may take", n)
		}
	}
	var overtaken, refused atomic.Int64
	for range workers {
		wg.Go(func() {
			err := table.Do(t.Context(), db, fencetest.Orders(1), func(tx *sql.Tx) error { overtaken.Add(1); return nil })
			if !errors.Is(err, fence.ErrStale) {
				t.Errorf("one that comes after the new leader: %v", err)
			}
			refused.Add(1)
		})
	}
	feedtest.Eventually(t, "they queue, or are refused", func() bool {
		return number(t, other, s.waiting) == 1+workers || refused.Load() == workers || overtaken.Load() > 0
	})
	close(goOn)
	wg.Wait()
	if n := overtaken.Load(); n > 0 {
		t.Errorf("%d of the old leader's transactions have overtaken the new one", n)
	}
}
