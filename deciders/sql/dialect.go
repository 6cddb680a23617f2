package sql

import (
	"context"
	"database/sql"
	"io"
	"strings"

	"github.com/c8e606e4/leaderelection/deciders/durability"
)

// Dialect is what differs between databases and their drivers. MySQL and SQLite return one. For
// another database, fill one in, and test it by decidertest.Run. The database must decide a
// conditional UPDATE atomically, and must have made a write safe when it confirms it.
//
// The statements of a Decider are these, with the dialect's own parts in them:
//
//	SELECT election, version, written, record FROM t WHERE election = ?
//	INSERT INTO t (election, version, written, record) VALUES (?, ?, Now, ?)
//	UPDATE t SET version = ?, written = Now, record = ? WHERE election = ? AND version = ?
//	UPDATE t SET written = written + 1 WHERE election = ? AND version = ?
//
// With Running each also has a comment. All parameters are strings. Do not change a Dialect after
// you gave it to NewDecider.
type Dialect struct {
	// Name is the database's, for errors: "MySQL".
	Name string
	// Mark is the i-th parameter of a statement, from 1. Nil: "?" for each.
	Mark func(i int) string
	// Quote quotes any name for SQL. Nil: in double quotes, as in the standard.
	Quote func(name string) string
	// Table is the statement that makes the table, and does nothing if it exists. Its "%s" is
	// for the table's quoted name. The column election must tell names apart by each byte, and
	// have a unique index of its own. Version is a text of 26 letters and digits, written a
	// whole number of 64 bits, and record a text of up to 256 KiB.
	Table string
	// Now is an SQL expression for the server's time, in whole microseconds since 1970.
	// Empty: the store does not say when a record was written.
	Now string
	// NowIsInsertID says that Now makes the driver's Result.LastInsertId return the time, as
	// MySQL's LAST_INSERT_ID(expr) does. The response to a write then has the time. A response
	// without it does not count.
	NowIsInsertID bool
	// Alone is a condition that holds only if a statement of the session commits by itself. A
	// write has it in its WHERE: within an open transaction, a write could be confirmed and
	// rolled back later. Empty: nothing is checked.
	Alone string
	// Dual is what follows a SELECT without a table, if it has a WHERE: " FROM DUAL".
	Dual string
	// Judge says what an error of the driver means. Nil: each is temporary. The decider itself
	// knows the errors of database/sql.
	Judge func(err error) Fault
	// Late says, for the error, what a call that was given up may have waited for.
	Late string
	// Inspect looks at a table before its first use, in the schema of that name, or in the
	// session's if it is empty. Place is where it was found, for String and errors: the server
	// and its database, or the file. It is empty if there is no such table. The error says why
	// the table cannot be used: wrap leaderelection.ErrPermanent. Nil: no table is looked at.
	Inspect func(ctx context.Context, db Asker, schema, table string) (place string, err error)
	// Lock, if not nil, is called for each write to the table at that place, and what it
	// returns is closed after the write. It is for databases whose own locks may fail.
	Lock func(ctx context.Context, place string) (io.Closer, error)
	// Running returns what each statement waits for that this user's sessions still run at the
	// server with mark in its text. Giving up a call does not end its statement there. So while
	// two of them still run, no more calls are made. Nil: the driver ends at the server what it
	// gives up.
	Running func(ctx context.Context, db Asker, mark string) (states []string, err error)
	// Durability is as in durability.Examiner. Nil: it has nothing to report.
	Durability func(ctx context.Context, db *sql.DB) ([]durability.Warning, error)
}

// Asker is what an Inspect needs of a *sql.DB.
type Asker interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Kind is what an error means.
type Kind int

const (
	// Passing is a temporary error: the same call may work later.
	Passing Kind = iota
	// Permanent is one that no retry can help.
	Permanent
	// Denied is a refusal of credentials or a permission. No retry helps, but it may go away by
	// itself. See leaderelection.ErrDenied.
	Denied
	// NoTable says that there is no such table.
	NoTable
	// NotAsDocumented says that the table has other columns than the documented ones.
	NotAsDocumented
	// Duplicate says that an INSERT found a row of that key.
	Duplicate
	// ReadOnly is an error that may pass: the session takes no writes. Its connection
	// is left, since another may lead to a server that does.
	ReadOnly
)

// Fault is what an error means, and what to do about it. The zero Fault is a temporary error of
// which nothing is known.
type Fault struct {
	Kind   Kind
	Advice string
}

// withDefaults fills in what may be left out.
func (d Dialect) withDefaults() Dialect {
	if d.Mark == nil {
		d.Mark = func(int) string { return "?" }
	}
	if d.Quote == nil {
		d.Quote = func(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
	}
	if d.Judge == nil {
		d.Judge = func(error) Fault { return Fault{} }
	}
	return d
}

// Schema returns the statement that makes the table, for your migrations. Table is as for
// NewDecider.
func (d Dialect) Schema(table string) string {
	return strings.ReplaceAll(d.Table, "%s", d.withDefaults().quoted(table))
}

// quoted is a table's name, perhaps with its schema's, as SQL takes it.
func (d Dialect) quoted(table string) string {
	parts := strings.Split(table, ".")
	for i, p := range parts {
		parts[i] = d.Quote(p)
	}
	return strings.Join(parts, ".")
}

// statements are those of one table.
type statements struct{ read, insert, update, touch, alone string }

func (d Dialect) statements(table string) (s statements) {
	t, now, where, values := d.quoted(table), d.Now, "", "VALUES (%1, %2, %now, %3)"
	if now == "" {
		now = "0"
	}
	if d.Alone != "" {
		where, values = " AND "+d.Alone, "SELECT %1, %2, %now, %3"+d.Dual+" WHERE "+d.Alone
		s.alone = "SELECT CASE WHEN " + d.Alone + " THEN 1 ELSE 0 END"
	}
	marks := strings.NewReplacer("%1", d.Mark(1), "%2", d.Mark(2), "%3", d.Mark(3), "%4", d.Mark(4), "%now", now)
	s.read = "SELECT election, version, written, record FROM " + t + marks.Replace(" WHERE election = %1")
	s.insert = "INSERT INTO " + t + marks.Replace(" (election, version, written, record) "+values)
	s.update = "UPDATE " + t + marks.Replace(" SET version = %1, written = %now, record = %2 WHERE election = %3 AND version = %4"+where)
	s.touch = "UPDATE " + t + marks.Replace(" SET written = written + 1 WHERE election = %1 AND version = %2"+where)
	return s
}
