package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
)

// Upsert is a statement that writes a row which is its own fence. It inserts the row if there is
// none, and replaces it unless a newer leadership has written it. Make it by NewUpsert. Its methods
// may be called by any number of goroutines at once. The row keeps a number but no election's name,
// so a table takes the rows of one election only.
type Upsert struct {
	dialect    Dialect
	name       string
	keys       int
	text, look string
	wants      []string // the parameters, for errors
}

// DB is what an Upsert needs of a *sql.DB, *sql.Conn or *sql.Tx.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

var columnName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// NewUpsert returns the statement for a table, named as for NewTable. Key is the columns of its
// primary key, or of one of its unique keys. Columns are the other columns to write. Fence is the
// column for the number, a BIGINT. MySQL compares all unique keys of the table: let it have only
// one.
func NewUpsert(d Dialect, table string, key, columns []string, fence string) (*Upsert, error) {
	all := append(append(slices.Clone(key), columns...), fence)
	switch {
	case d.mark == nil:
		return nil, errors.New("fencesql: the Dialect is the zero Dialect: use PostgreSQL, MySQL or SQLite")
	case !tableName.MatchString(table):
		return nil, fmt.Errorf("fencesql: %q is not a valid name of a table: use letters, digits and underscores, with a schema before a dot if need be", table)
	case len(key) == 0:
		return nil, fmt.Errorf("fencesql: the upsert into table %s has no key: name the columns of its primary key", table)
	}
	for i, c := range all {
		if !columnName.MatchString(c) {
			return nil, fmt.Errorf("fencesql: %q is not a valid name of a column: use letters, digits and underscores", c)
		}
		if slices.Contains(all[:i], c) {
			return nil, fmt.Errorf("fencesql: the upsert into table %s has the column %s twice", table, c)
		}
	}
	marks, match := make([]string, len(all)), make([]string, len(key))
	for i := range all {
		marks[i] = d.mark(i + 1)
	}
	for i, c := range key {
		match[i] = c + " = " + marks[i]
	}
	return &Upsert{
		dialect: d, name: table, keys: len(key), wants: all[:len(all)-1],
		text: fmt.Sprintf("INSERT INTO %s%s (%s) VALUES (%s) %s", table, d.alias, strings.Join(all, ", "), strings.Join(marks, ", "), d.replace(key, columns, fence)),
		look: "SELECT " + fence + " FROM " + table + " WHERE " + strings.Join(match, " AND ") + d.shared,
	}, nil
}

// Text returns the statement, for drivers other than those of database/sql. Its parameters are the
// values of the key, of the columns, and the token's number. In PostgreSQL and SQLite it affects no
// row if the token is stale, or a trigger skips the row. In MySQL the number of rows says nothing.
func (u *Upsert) Text() string { return u.text }

// Exec runs the statement with the values of the key and of the columns, in this order. It returns
// nil, a *fence.StaleError, the error of token.Check, an error of the database, or
// fence.ErrNotWritten if the row was not written though no newer leadership has it.
//
// In a transaction of yours above READ COMMITTED, the database may refuse the statement with an
// error of its own if the row was written meanwhile. In MySQL a second statement finds out whether
// the token is stale. If a newer leadership writes the row between the two, Exec reports that this
// token did not write it.
func (u *Upsert) Exec(ctx context.Context, db DB, token fence.Token, values ...any) error {
	if err := check(token); err != nil {
		return err
	}
	if len(values) != len(u.wants) {
		return fmt.Errorf("fencesql: the upsert into table %s has %d values, want those of %s", u.name, len(values), strings.Join(u.wants, ", "))
	}
	failed := func(doing string, err error) error {
		return fmt.Errorf("fencesql: %s table %s under %v: %w", doing, u.name, token, err)
	}
	r, err := db.ExecContext(ctx, u.text, append(slices.Clone(values), int64(token.Number))...)
	if err != nil {
		return failed("upserting into", err)
	}
	if !u.dialect.unsure {
		if n, err := r.RowsAffected(); err != nil {
			return failed("upserting into", err)
		} else if n > 0 {
			return nil
		}
	}
	var seen sql.NullInt64
	err = db.QueryRowContext(ctx, u.look, values[:u.keys]...).Scan(&seen)
	switch greatest := leaderelection.ElectionNumber(max(seen.Int64, 0)); {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return failed("reading the fence of a row in", err)
	case greatest > token.Number:
		return &fence.StaleError{Token: token, Greatest: greatest}
	case u.dialect.unsure && greatest == token.Number:
		return nil
	}
	return fmt.Errorf("fencesql: upserting into table %s under %v: %w (its fence is %d): a trigger or a rule may have skipped the row", u.name, token, fence.ErrNotWritten, seen.Int64)
}

// onConflictRow is what the databases with this clause do about a row that is there.
func onConflictRow(key, columns []string, fence string) string {
	var set []string
	for _, c := range append(slices.Clone(columns), fence) {
		set = append(set, c+" = excluded."+c)
	}
	return fmt.Sprintf("ON CONFLICT (%s) DO UPDATE SET %s WHERE %s", strings.Join(key, ", "), strings.Join(set, ", "), Condition("f."+fence, "excluded."+fence))
}

// onDuplicateKeyRow is what MySQL does. It has no condition for the whole, so each column
// has its own. (Those after the fence would see the new one, for which it holds as well.)
func onDuplicateKeyRow(_, columns []string, fence string) string {
	var set []string
	for _, c := range append(slices.Clone(columns), fence) {
		set = append(set, fmt.Sprintf("%s = IF(%s, VALUES(%s), %s)", c, Condition(fence, "VALUES("+fence+")"), c, c))
	}
	return "ON DUPLICATE KEY UPDATE " + strings.Join(set, ", ")
}
