package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencesql"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

func tables(t *testing.T, s server) {
	db := s.open(t)
	if err := s.named(t, "fences", nil).Do(t.Context(), db, fencetest.Orders(1), func(*sql.Tx) error { return nil }); err == nil || !strings.Contains(err.Error(), "fences") {
		t.Errorf("no table, and %v", err)
	}
	storetest.Exec(t, db, "DROP SCHEMA IF EXISTS s") // MariaDB has one for all databases
	storetest.Exec(t, db, "CREATE SCHEMA s")
	table := s.table(t, "s.fences", nil)
	if err := table.Create(t.Context(), db); err != nil {
		t.Errorf("making it again: %v", err)
	}
	account(t, db)
	t.Run("in turn", func(t *testing.T) { inTurn(t, db, table, "s.fences") })
	t.Run("the late one waits, then is refused", func(t *testing.T) { late(t, s, table) })
	t.Run("at once", func(t *testing.T) { atOnce(t, db, table) })
	t.Run("condition", func(t *testing.T) { condition(t, s, db) })
}

func inTurn(t *testing.T, db *sql.DB, table *fencesql.Table, name string) {
	long := strings.Repeat("e", 246)
	for _, c := range []struct {
		token fence.Token
		want  error
	}{
		{fencetest.Orders(2), nil}, {fencetest.Orders(2), nil}, {fencetest.Orders(1), fence.ErrStale}, {fencetest.Orders(5), nil}, {fencetest.Orders(4), fence.ErrStale}, {fencetest.Orders(5), nil},
		{fencetest.Orders(0), fence.ErrNoToken}, {fencetest.Orders(1 << 63), fence.ErrMalformed}, {fence.Token{Number: 7}, fence.ErrMalformed}, {fence.Token{Election: "o'ther", Number: 1}, nil},
		{fence.Token{Election: long, Number: 1}, fence.ErrMalformed}, {fence.Token{Election: long[1:], Number: 1}, nil},
	} {
		if err := add(t.Context(), db, table, c.token, "1"); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.token, err, c.want)
		}
	}
	var stale *fence.StaleError
	for name, err := range map[string]error{"Do": add(t.Context(), db, table, fencetest.Orders(3), "1"), "Raise": table.Raise(t.Context(), db, fencetest.Orders(3))} {
		if !errors.As(err, &stale) || stale.Greatest != 5 {
			t.Errorf("%s: %v", name, err)
		}
	}
	own := errors.New("own")
	if err := table.Do(t.Context(), db, fencetest.Orders(5), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = 1000")
		return errors.Join(err, own)
	}); !errors.Is(err, own) {
		t.Errorf("act's error became %v", err)
	}
	if n := number(t, db, "SELECT balance FROM account"); n != 6 {
		t.Errorf("%d writes", n)
	}
	// A fence that is deleted is made again.
	storetest.Exec(t, db, "DELETE FROM "+name+" WHERE election = 'orders'")
	if err := add(t.Context(), db, table, fencetest.Orders(5), "1"); err != nil {
		t.Error(err)
	}
	storetest.Exec(t, db, "UPDATE "+name+" SET number = -1 WHERE election = 'orders'")
	if err := add(t.Context(), db, table, fencetest.Orders(5), "1"); err == nil || !strings.Contains(err.Error(), "-1") {
		t.Errorf("with a fence of -1: %v", err)
	}
	storetest.Exec(t, db, "DELETE FROM "+name)
}

// A transaction of the old leadership is under way when the new leader comes: the new
// one waits for it, reads what it has written, and whatever the old one begins later
// is refused.
func late(t *testing.T, s server, table *fencesql.Table) {
	db, others := s.open(t), s.open(t)
	storetest.Exec(t, db, "UPDATE account SET balance = 0")
	var ended atomic.Bool
	inside, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		does(t, db, table, 10, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "UPDATE account SET balance = 100")
			close(inside)
			<-goOn
			ended.Store(true)
			return err
		})
	})
	<-inside
	if s.waiting == "" { // nobody comes between: SQLite has one writer at a time
		if err := add(storetest.Within(t, 50*time.Millisecond), others, table, fencetest.Orders(11), "1"); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("while the old one writes: %v", err)
		}
	}
	wg.Go(func() {
		does(t, others, table, 11, func(tx *sql.Tx) error {
			var balance int
			err := tx.QueryRowContext(t.Context(), "SELECT balance FROM account").Scan(&balance)
			if balance != 100 || !ended.Load() {
				t.Errorf("the new leader reads %d, where the old one leaves 100 (it has ended: %v)", balance, ended.Load())
			}
			return err
		})
	})
	if s.waiting != "" {
		feedtest.Eventually(t, "the new one waits for the old one's lock", func() bool { return number(t, db, s.waiting) > 0 })
	}
	close(goOn)
	wg.Wait()
	if err := add(t.Context(), db, table, fencetest.Orders(10), "1"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the old leader again: %v", err)
	}
}

// Many at once, of a leadership that nobody has seen yet, and of later and later ones: nobody
// is deadlocked, and after the first of a leadership none of an older one is let in.
func atOnce(t *testing.T, db *sql.DB, table *fencesql.Table) {
	var greatest, admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 10 {
				token := fencetest.Orders(uint64(100 + n + i%2))
				err := table.Do(t.Context(), db, token, func(tx *sql.Tx) error {
					mine := int64(token.Number)
					if g := greatest.Load(); g > mine {
						return fmt.Errorf("%d is let in after %d", mine, g)
					}
					for g := greatest.Load(); g < mine && !greatest.CompareAndSwap(g, mine); g = greatest.Load() {
					}
					return nil
				})
				switch {
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
	if admitted.Load() < 11 || admitted.Load()+refused.Load() != 80 {
		t.Errorf("%d admitted, %d refused", admitted.Load(), refused.Load())
	}
	// All at once of the newest: none fails.
	for range 8 {
		wg.Go(func() { does(t, db, table, 1000, func(*sql.Tx) error { return nil }) })
	}
	wg.Wait()
}

func condition(t *testing.T, s server, db *sql.DB) {
	storetest.Exec(t, db, "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT, fence BIGINT)")
	storetest.Exec(t, db, "INSERT INTO accounts VALUES (1, 0, NULL)")
	update := "UPDATE accounts SET balance = balance + 1, fence = $1 WHERE id = 1 AND " + fencesql.Condition("fence", "$2")
	if s.driver == "mysql" {
		update = strings.NewReplacer("$1", "?", "$2", "?").Replace(update)
	}
	for _, c := range []struct{ number, rows int64 }{{2, 1}, {1, 0}, {2, 1}, {3, 1}, {2, 0}} {
		if n := storetest.Exec(t, db, update, c.number, c.number); n != c.rows {
			t.Errorf("%d: %d rows, want %d", c.number, n, c.rows)
		}
	}
}

// A transaction of one's own sees what earlier leaders have committed, or is refused.
func admit(t *testing.T, s server) {
	db := s.open(t)
	table := s.table(t, "fences", nil)
	account(t, db)
	begin := func() *sql.Tx {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	raise := func(n uint64) {
		t.Helper()
		if err := table.Raise(t.Context(), db, fencetest.Orders(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Check(t.Context(), begin(), fencetest.Orders(10)); !errors.Is(err, fencesql.ErrNotRaised) {
		t.Errorf("before it was raised: %v", err)
	}
	raise(10)
	raise(10)
	old := begin()
	if err := table.Check(t.Context(), old, fencetest.Orders(10)); err != nil {
		t.Fatal(err)
	}
	// One of the new leader's looks round too early.
	early := begin()
	balance := func(ctx context.Context, tx *sql.Tx) (n int) {
		t.Helper()
		if err := tx.QueryRowContext(ctx, "SELECT balance FROM account").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	serial := strings.Contains(t.Name(), "MariaDB/serializable") // there, whoever reads locks
	if !serial {
		balance(t.Context(), early)
	}
	if _, err := old.ExecContext(t.Context(), "UPDATE account SET balance = 100"); err != nil {
		t.Fatal(err)
	}
	if err := old.Commit(); err != nil {
		t.Fatal(err)
	}
	raise(11)
	switch err := table.Check(t.Context(), early, fencetest.Orders(11)); {
	case err == nil:
		if n := balance(t.Context(), early); n != 100 {
			t.Errorf("admitted, it reads %d, where the old leader has left 100", n)
		}
	case !errors.Is(err, fencesql.ErrNotRaised):
		t.Error(err)
	}
	_ = early.Rollback()
	tx := begin()
	if err := table.Check(t.Context(), tx, fencetest.Orders(11)); err != nil {
		t.Error(err)
	}
	if n := balance(t.Context(), tx); n != 100 {
		t.Errorf("it reads %d, where the old leader has left 100", n)
	}
	if err := table.Check(t.Context(), begin(), fencetest.Orders(10)); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the old leader: %v", err)
	}
}

// Names that MySQL's collations take for one are fences of their own, or refused.
func names(t *testing.T, s server) {
	elections := []string{"orders", "Orders", "órders", "orders ", "ORDERS\x01"}
	db := s.open(t)
	table := s.table(t, "fences", nil)
	for i, name := range elections {
		if err := table.Raise(t.Context(), db, fence.Token{Election: name, Number: 9 - leaderelection.ElectionNumber(i)}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if s.driver != "mysql" {
		return
	}
	storetest.Exec(t, db, "CREATE TABLE loose (election VARCHAR(255) CHARACTER SET utf8mb4 PRIMARY KEY, number BIGINT NOT NULL)")
	loose := s.named(t, "loose", nil)
	for i, name := range elections[:4] {
		err := loose.Raise(t.Context(), db, fence.Token{Election: name, Number: leaderelection.ElectionNumber(i) + 1})
		if i == 0 && err != nil || i > 0 && (err == nil || !strings.Contains(err.Error(), "VARBINARY(255)")) {
			t.Errorf("%q in a table that ignores case: %v", name, err)
		}
	}
	if n := number(t, db, "SELECT number FROM loose"); n != 1 {
		t.Errorf("another's fence was raised to %d", n)
	}
}

func TestNewTableRefuses(t *testing.T) {
	for _, name := range []string{"", "a b", "a;drop table x", "1a", "a.b.c", `"a"`, "ä"} {
		if _, err := fencesql.NewTable(fencesql.PostgreSQL(), name, nil); err == nil {
			t.Errorf("%q is taken for a table", name)
		}
	}
	if _, err := fencesql.NewTable(fencesql.Dialect{}, "fences", nil); err == nil {
		t.Error("the zero Dialect is taken")
	}
}

// Behind a pooler in transaction mode each transaction may be another session's.
func TestBehindAPooler(t *testing.T) {
	t.Parallel()
	bouncer := stores.PgBouncer(t, stores.Postgres(t), 3)
	s := server{dialect: fencesql.PostgreSQL(), driver: "pgx", address: "postgres://postgres@" + bouncer.Addr + "/postgres?sslmode=disable&default_query_exec_mode=exec"}
	db := s.open(t)
	db.SetMaxOpenConns(8)
	storetest.Exec(t, db, "CREATE SCHEMA s")
	table := s.table(t, "s.fences", nil)
	account(t, db)
	inTurn(t, db, table, "s.fences")
	atOnce(t, db, table)
}

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
	if err := add(storetest.Within(t, 5*idle), db, table, fencetest.Orders(2), "1"); err != nil {
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
	show, set, unset, most := "SELECT @@SESSION.wait_timeout", "SET SESSION wait_timeout = 60", "SET SESSION wait_timeout = 1000", int64(1000)
	if s.driver == "pgx" {
		const name = "idle_in_transaction_session_timeout"
		show = "SELECT extract(epoch FROM current_setting('" + name + "')::interval)::int8"
		set, unset, most = "SET "+name+" = '1min'", "SET "+name+" = 0", 3600
	}
	for _, c := range []struct {
		idle   time.Duration
		before string
		want   int64
	}{{0, unset, 10}, {0, set, 10}, {time.Hour, set, 60}, {time.Hour, unset, most}, {-1, set, 60}, {1500 * time.Millisecond, unset, 2}} {
		db := s.open(t)
		db.SetMaxOpenConns(1)
		storetest.Exec(t, db, c.before)
		table := s.table(t, "fences", &fencesql.Options{IdleTimeout: c.idle})
		does(t, db, table, 1, func(tx *sql.Tx) error {
			var got int64
			if err := tx.QueryRowContext(t.Context(), show).Scan(&got); err != nil || got != c.want {
				t.Errorf("IdleTimeout %v after %q: %d s, %v; want %d", c.idle, c.before, got, err, c.want)
			}
			return nil
		})
		if s.driver == "mysql" && c.idle == 1500*time.Millisecond {
			<-time.After(3 * time.Second)
			does(t, db, table, 1, func(*sql.Tx) error { return nil }) // after the server has closed the connection
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
		does(t, db, table, 1, func(*sql.Tx) error {
			close(inside)
			<-goOn
			return nil
		})
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
