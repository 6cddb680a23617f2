/*
Package fencesql fences writes to an SQL database. The check is part of the transaction that writes,
so nothing comes between them. There are two ways.

A row can be its own fence. This needs no code: give the row a column for the number, and write with
a condition. [Condition] returns its text:

	UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2

If no row was affected, there is no such row, or the token is stale, or a trigger has skipped the
row. In MySQL the row may also have had these values already, unless the driver counts the rows that
were found (clientFoundRows=true). So let each write change something, or read the row's number
before you take a token for stale. An [Upsert] also makes the row, and returns fence.ErrStale or
fence.ErrNotWritten. Until the new leader has written a row, the row accepts an old leader's write.

A [Table] fences everything at once. One row per election holds the greatest number seen, and each
transaction first checks and locks it.

	err := fences.Do(ctx, db, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE ...")
		return err
	})

Transactions of one leadership share the lock, and run side by side. A new leader first raises the
fence, in a short transaction of its own. It waits for transactions of the old leadership that are
under way. Later ones queue behind it, or are refused already. Once the fence is raised, every
transaction of the old leadership is refused with fence.ErrStale.

# Isolation levels

Do works at any isolation level, so it uses the database's default (REPEATABLE READ in MySQL). Such
a transaction may read data as old as its beginning. It is admitted only if it sees the fence raised
to its own number. So it also sees everything that earlier leaders have committed.

For the same reason [Table.Check], for transactions that you begin yourself, does not raise the
fence. Call [Table.Raise] when the leadership begins, and begin them after that.

# A leader that vanishes

A leader that hangs, or whose machine is gone, may leave a transaction open, and the new leader
would wait for it. So Options.IdleTimeout limits how long a transaction under a fence may do nothing
between two statements. After that the server ends its session and rolls it back.

In PostgreSQL this is idle_in_transaction_session_timeout, for the transaction alone. MySQL and
MariaDB only have wait_timeout, for the session. It stays set when the connection returns to its
pool. If nobody uses the connection for that time, the server closes it, and the pool makes another.

A running statement is not idle. If its client is gone, PostgreSQL's
client_connection_check_interval, set on the server, ends it.

# What a Table needs of its database

  - One writer: all transactions go to one server, or to one node of a cluster. Raise refuses a
    Galera cluster of several nodes, and group replication with several primaries, unless
    Options.OneWriter is set. A Condition or an Upsert does not need this: of two writes of a row,
    such a cluster lets one win.
  - Transactions and durability: Raise refuses a MySQL table of an engine other than InnoDB or
    MyRocks. It refuses an UNLOGGED or TEMPORARY table of PostgreSQL, which a crash empties. It
    raises the fence with synchronous_commit=on.
  - Any isolation level, see above.

Other settings can lose confirmed writes: fsync=off, innodb_flush_log_at_trx_commit other than 1, a
fail-over to a replica that lags. Then a deposed leader can write until the fence is raised again.
See the decider of that database, and leaderelect doctor.

# The table

Create makes it. In PostgreSQL and SQLite it is

	CREATE TABLE fences (election VARCHAR(255) PRIMARY KEY, number BIGINT NOT NULL)

In MySQL the column election is VARBINARY(255). With the usual collations "orders", "Orders" and
"orders " would be one fence, which is refused. In PostgreSQL each election has a second row, whose
name ends in " (raising)". It has the number that the fence is being raised to.

The user needs SELECT, INSERT and UPDATE on the table. (PostgreSQL demands UPDATE even for a shared
row lock.) A check costs three short statements of the transaction.

# When a record or a fence is lost

Numbers must not go back.

  - After a restore of an election's record from a backup, or a Reset to a lower number, the fence
    refuses each leader with fence.ErrStale until the numbers have passed the greatest seen. That is
    safe, but nobody can write.
  - If the fence's row is deleted, or its database is restored, the fence has forgotten numbers. A
    deposed leader can write until the present leader raises the fence again, by Do or Raise. If its
    number is greater than all that follow (after a restore of both), a deposed leader could even
    shut them out.

So stop all candidates before a restore. Then set the fence to the number in the record, or to 0 if
there is no record:

	UPDATE fences SET number = 0 WHERE election IN ('orders', 'orders (raising)')

Tested on PostgreSQL, MariaDB, and SQLite (modernc.org/sqlite, with WAL and with rollback journals).
*/
package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
)

// Options adjusts a Table. The zero value is right for most.
type Options struct {
	// IdleTimeout is how long a transaction under the fence may do nothing between two
	// statements, before the server ends its session. So it is how long a leader that vanished
	// delays the next. Zero: 10 s. Negative: as long as the server allows. MySQL counts in
	// seconds. If the session has a lower limit, that applies.
	IdleTimeout time.Duration
	// OneWriter says that all who use the table write to one node of their cluster. If it is
	// not set, Raise refuses a MySQL server that is one of several that take writes (Galera,
	// group replication with several primaries). There a lock holds on one node only, so a
	// deposed leader's transaction could commit after the new leader's.
	OneWriter bool
}

// ErrNotRaised says that a transaction began before the fence was raised to its token's number:
// call Table.Raise, and begin it again.
var ErrNotRaised = errors.New("fencesql: the fence is not raised to the token's number")

// Table is a table of fences. Its methods may be called by any number of
// goroutines at once.
type Table struct {
	dialect                 Dialect
	name                    string
	oneWriter               bool
	look, lock, upsert, ddl string
	enter, enterAlone       statement
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// NewTable returns the table of that name ("fences", or "schema.fences"). The name may have
// letters, digits and underscores, since it becomes a part of statements. Options may be nil.
func NewTable(d Dialect, name string, opts *Options) (*Table, error) {
	if !tableName.MatchString(name) {
		return nil, fmt.Errorf("fencesql: %q is not a valid name of a table: use letters, digits and underscores, with a schema before a dot if need be", name)
	}
	if d.mark == nil {
		return nil, errors.New("fencesql: the Dialect is the zero Dialect: use PostgreSQL, MySQL or SQLite")
	}
	idle := 10 * time.Second
	if opts != nil && opts.IdleTimeout != 0 {
		idle = opts.IdleTimeout
	}
	t := &Table{
		dialect: d, name: name, oneWriter: opts != nil && opts.OneWriter,
		look:   "SELECT election, number FROM " + name + " WHERE election = " + d.mark(1),
		upsert: fmt.Sprintf(d.upsert, name),
		ddl:    "CREATE TABLE IF NOT EXISTS " + name + " (election " + d.key + " PRIMARY KEY, number BIGINT NOT NULL)",
	}
	t.lock = t.look + d.shared
	if d.enter != nil {
		t.enter, t.enterAlone = d.enter(name, idle, false), d.enter(name, idle, true)
	}
	return t, nil
}

// Create makes the table if it is missing.
func (t *Table) Create(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, t.ddl); err != nil {
		return fmt.Errorf("fencesql: creating table %s: %w", t.name, err)
	}
	return nil
}

// Do runs act in a transaction that begins with a check of token, and commits it if act returns
// nil. It raises the fence first if that is needed. It returns act's error, a *fence.StaleError,
// the error of token.Check, or an error of the database.
func (t *Table) Do(ctx context.Context, db *sql.DB, token fence.Token, act func(tx *sql.Tx) error) error {
	if err := check(token); err != nil {
		return err
	}
	const tries = 3 // the second finds the fence raised
	for range tries {
		admitted, err := t.try(ctx, db, token, act)
		if admitted || err == nil {
			return err
		}
		if !errors.Is(err, ErrNotRaised) {
			// Above READ COMMITTED a fence that was raised meanwhile is refused
			// in the database's own words.
			if seen, lookErr := t.seen(ctx, db, t.look, token); lookErr == nil && seen > token.Number {
				return &fence.StaleError{Token: token, Greatest: seen}
			}
			return err
		}
		if err := t.Raise(ctx, db, token); err != nil {
			return err
		}
	}
	return fmt.Errorf("fencesql: table %s: the fence of %q does not keep its value", t.name, token.Election)
}

// try is one transaction; it tells whether act ran.
func (t *Table) try(ctx context.Context, db *sql.DB, token fence.Token, act func(tx *sql.Tx) error) (admitted bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("fencesql: beginning a transaction for %v: %w", token, err)
	}
	defer tx.Rollback() // does nothing after a commit
	if err := t.Check(ctx, tx, token); err != nil {
		return false, err
	}
	if err := act(tx); err != nil {
		return true, err
	}
	if err := tx.Commit(); err != nil {
		return true, fmt.Errorf("fencesql: committing for %v: %w", token, err)
	}
	return true, nil
}

// Raise raises the fence to token's number, in a transaction of its own. That transaction waits for
// those of earlier leaderships to end. If the fence has this number already, Raise changes nothing.
// It returns nil, a *fence.StaleError, the error of token.Check, or an error of the database.
func (t *Table) Raise(ctx context.Context, db *sql.DB, token fence.Token) error {
	if err := check(token); err != nil {
		return err
	}
	if t.dialect.unfit != nil {
		if err := t.dialect.unfit(ctx, db, t.name, t.oneWriter); err != nil {
			return fmt.Errorf("fencesql: table %s: %w", t.name, err)
		}
	}
	seen, err := t.seen(ctx, db, t.look, token)
	if err == nil && seen < token.Number {
		if err = t.raise(ctx, db, token); err == nil {
			seen, err = t.seen(ctx, db, t.look, token)
		}
	}
	switch {
	case err != nil:
		return err
	case seen > token.Number:
		return &fence.StaleError{Token: token, Greatest: seen}
	case seen < token.Number:
		return fmt.Errorf("fencesql: table %s: the fence of %q is %d, just raised to %d", t.name, token.Election, seen, token.Number)
	}
	return nil
}

func (t *Table) raise(ctx context.Context, db *sql.DB, token fence.Token) error {
	var err error
	if t.enter.announced {
		err = t.set(ctx, db, token.Election+announced, token.Number)
	}
	if err == nil {
		err = t.set(ctx, db, token.Election, token.Number)
	}
	if err != nil {
		return fmt.Errorf("fencesql: raising the fence of %q in table %s to %d: %w", token.Election, t.name, token.Number, err)
	}
	return nil
}

// set raises the number of a row, in a transaction of its own.
func (t *Table) set(ctx context.Context, db *sql.DB, name string, number leaderelection.ElectionNumber) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: t.dialect.raising})
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after a commit
	if _, err := t.enterAlone.run(ctx, tx, name); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, t.upsert, name, int64(number)); err != nil {
		return err
	}
	return tx.Commit()
}

// Check checks token within tx, at any isolation level. Call it before anything else in the
// transaction. If the fence was not raised before tx began, see [Table.Raise], it returns
// ErrNotRaised. The check holds until tx ends. It returns nil, ErrNotRaised, a *fence.StaleError,
// the error of token.Check, or an error of the database. After an error, roll back.
func (t *Table) Check(ctx context.Context, tx *sql.Tx, token fence.Token) error {
	if err := check(token); err != nil {
		return err
	}
	coming, err := t.enter.run(ctx, tx, token.Election)
	if err != nil {
		return fmt.Errorf("fencesql: beginning a transaction under the fence of %q in table %s: %w", token.Election, t.name, err)
	}
	if coming > token.Number {
		return &fence.StaleError{Token: token, Greatest: coming}
	}
	// First as this transaction sees the database, then as it is, under a lock.
	seen, err := t.seen(ctx, tx, t.look, token)
	if err == nil && seen == token.Number {
		seen, err = t.seen(ctx, tx, t.lock, token)
	}
	switch {
	case err != nil:
		return err
	case seen > token.Number:
		return &fence.StaleError{Token: token, Greatest: seen}
	case seen < token.Number:
		return fmt.Errorf("%w: the transaction sees %d for %q in table %s, and the token is %v: call Raise, and then begin the transaction",
			ErrNotRaised, seen, token.Election, t.name, token)
	}
	return nil
}

// announced is what the name of an election's second row ends in: the number that its fence is
// about to be raised to.
const announced = " (raising)"

// run returns the number that the fence is about to be raised to, if the statement tells it.
func (s statement) run(ctx context.Context, tx *sql.Tx, election string) (coming leaderelection.ElectionNumber, err error) {
	if !s.announced {
		if s.text != "" {
			_, err = tx.ExecContext(ctx, s.text)
		}
		return 0, err
	}
	var n int64
	err = tx.QueryRowContext(ctx, s.text, election+announced).Scan(&n)
	return leaderelection.ElectionNumber(max(n, 0)), err
}

// check reports whether token can be one.
func check(token fence.Token) error {
	const longest = 255 - len(announced) // what the column takes: a longer name might be cut there
	switch err := token.Check(token.Election); {
	case err != nil:
		return err
	case strings.HasSuffix(token.Election, announced):
		return fmt.Errorf("%w %v: no election's name may end in %q", fence.ErrMalformed, token, announced)
	case len(token.Election) > longest:
		return fmt.Errorf("%w %v: the election's name may have %d bytes", fence.ErrMalformed, token, longest)
	}
	return nil
}

// seen returns the fence of token's election, 0 where there is none.
func (t *Table) seen(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, query string, token fence.Token) (leaderelection.ElectionNumber, error) {
	var election string
	var n int64
	err := db.QueryRowContext(ctx, query, token.Election).Scan(&election, &n)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("fencesql: reading the fence of %q in table %s: %w", token.Election, t.name, err)
	case election != token.Election:
		return 0, fmt.Errorf("fencesql: table %s takes %q for %q: give its column election the type %s", t.name, election, token.Election, t.dialect.key)
	case n < 0:
		return 0, fmt.Errorf("fencesql: table %s has %d as the fence of %q: it must not be negative", t.name, n, token.Election)
	}
	return leaderelection.ElectionNumber(n), nil
}

// Condition returns the condition under which a row with a column for the number may be written:
// column <= mark, or the column is NULL, as in rows from before there was a fence. Mark is the
// parameter with the token's number ("$2", "?").
func Condition(column, mark string) string {
	return "(" + column + " IS NULL OR " + column + " <= " + mark + ")"
}
