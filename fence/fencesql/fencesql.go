/*
Package fencesql fences writes to an SQL database: the check is part of the
transaction that writes, so that nothing comes between them.

There are two ways. The simplest needs no code: give the row that is written a
column for the number, and write on condition. [Condition] is the text of it:

	UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2

No row affected means that there is no such row, or that the token is stale. Rows
fence themselves one by one: one that the new leader has not written yet takes an
old leader's write.

A [Table] fences everything at once: one row per election holds the greatest
number seen, and each transaction checks and locks it first.

	err := fences.Do(ctx, db, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE ...")
		return err
	})

Transactions of one reign run side by side, under a shared lock. The first of a
new reign waits for those of the old one that are under way, and every later one
of the old reign is refused with fence.ErrStale, until its very commit.

The table is

	CREATE TABLE fences (election VARCHAR(255) PRIMARY KEY, number BIGINT NOT NULL)

and Create makes it. Its user needs SELECT, INSERT and UPDATE on it (PostgreSQL
asks for UPDATE for a shared row lock as well). A check costs two short statements
of the transaction, some more for the first of a reign.

Tested on PostgreSQL. The statements for MySQL and SQLite follow their manuals.
*/
package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
)

// Dialect is what differs from one database to another.
type Dialect struct {
	name   string
	mark   func(i int) string // the i-th parameter, from 1
	shared string             // appended to a SELECT: lock the row for others to read
	insert string             // a row where there is none; table, two parameters
}

// The databases.
var (
	PostgreSQL = Dialect{name: "PostgreSQL", mark: func(i int) string { return "$" + strconv.Itoa(i) }, shared: " FOR SHARE",
		insert: "INSERT INTO %s (election, number) VALUES ($1, 0) ON CONFLICT (election) DO NOTHING"}
	MySQL = Dialect{name: "MySQL", mark: question, shared: " LOCK IN SHARE MODE",
		insert: "INSERT IGNORE INTO %s (election, number) VALUES (?, 0)"}
	// SQLite has one writer at a time and no row locks: begin its transactions
	// as immediate ones (the driver's _txlock=immediate or the like), or two that
	// check before they write end in SQLITE_BUSY.
	SQLite = Dialect{name: "SQLite", mark: question,
		insert: "INSERT OR IGNORE INTO %s (election, number) VALUES (?, 0)"}
)

func question(int) string { return "?" }

// Table is a table of fences. Its methods may be called by any number of
// goroutines at once.
type Table struct {
	dialect                Dialect
	name                   string
	look, make, raise, ddl string
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// NewTable returns the table of that name ("fences", or "schema.fences"): letters,
// digits and underscores, since it becomes a part of statements.
func NewTable(d Dialect, name string) (*Table, error) {
	if !tableName.MatchString(name) {
		return nil, fmt.Errorf("fencesql: %q is no name for a table: use letters, digits and underscores, with a schema before a dot if need be", name)
	}
	if d.mark == nil {
		return nil, errors.New("fencesql: the zero Dialect is none: use PostgreSQL, MySQL or SQLite")
	}
	return &Table{
		dialect: d, name: name,
		look:  "SELECT number FROM " + name + " WHERE election = " + d.mark(1),
		make:  fmt.Sprintf(d.insert, name),
		raise: "UPDATE " + name + " SET number = " + d.mark(1) + " WHERE election = " + d.mark(2) + " AND number < " + d.mark(3),
		ddl:   "CREATE TABLE IF NOT EXISTS " + name + " (election VARCHAR(255) PRIMARY KEY, number BIGINT NOT NULL)",
	}, nil
}

// Create makes the table where there is none.
func (t *Table) Create(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, t.ddl); err != nil {
		return fmt.Errorf("fencesql: creating table %s: %w", t.name, err)
	}
	return nil
}

// Do runs act in a transaction that begins with a check of token, and commits it
// where act returns nil. It returns act's error, a *fence.StaleError,
// fence.ErrNoToken, or what the database says.
func (t *Table) Do(ctx context.Context, db *sql.DB, token fence.Token, act func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("fencesql: beginning a transaction for %v: %w", token, err)
	}
	defer tx.Rollback() // does nothing after a commit
	if err := t.Admit(ctx, tx, token); err != nil {
		return err
	}
	if err := act(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("fencesql: committing for %v: %w", token, err)
	}
	return nil
}

// Admit checks token within tx, and remembers it: call it before anything else
// in the transaction. It holds until tx ends. It returns nil, a *fence.StaleError,
// fence.ErrNoToken, or what the database says; then roll back.
func (t *Table) Admit(ctx context.Context, tx *sql.Tx, token fence.Token) error {
	if err := token.Check(token.Election); err != nil {
		return err
	}
	if uint64(token.Number) > math.MaxInt64 {
		return fmt.Errorf("%w %v: the number is too great for a BIGINT", fence.ErrMalformed, token)
	}
	for range 4 {
		// Without a lock first: two transactions that both share a row and both
		// want to raise it would wait for each other.
		seen, known, err := t.seen(ctx, tx, t.look, token)
		if err == nil && known && seen == token.Number {
			seen, known, err = t.seen(ctx, tx, t.look+t.dialect.shared, token)
		}
		switch {
		case err != nil:
			return err
		case known && seen == token.Number:
			return nil
		case seen > token.Number:
			return &fence.StaleError{Token: token, Greatest: seen}
		case !known:
			_, err = tx.ExecContext(ctx, t.make, token.Election)
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, t.raise, int64(token.Number), token.Election, int64(token.Number))
		}
		if err != nil {
			return fmt.Errorf("fencesql: raising the fence in table %s to %v: %w", t.name, token, err)
		}
		// Another may have raised it further meanwhile: look again.
	}
	return fmt.Errorf("fencesql: table %s: the fence of %q does not keep its value", t.name, token.Election)
}

func (t *Table) seen(ctx context.Context, tx *sql.Tx, query string, token fence.Token) (leaderelection.ElectionNumber, bool, error) {
	var n int64
	err := tx.QueryRowContext(ctx, query, token.Election).Scan(&n)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("fencesql: reading the fence of %q in table %s: %w", token.Election, t.name, err)
	case n < 0:
		return 0, false, fmt.Errorf("fencesql: table %s has %d as the fence of %q, which is none", t.name, n, token.Election)
	}
	return leaderelection.ElectionNumber(n), true, nil
}

// Condition is the condition under which a row with a column for the number may
// be written: column <= mark, or a column that is NULL, as in rows from before
// there was one. Mark is the parameter that holds the token's number ("$2", "?").
func Condition(column, mark string) string {
	return "(" + column + " IS NULL OR " + column + " <= " + mark + ")"
}
