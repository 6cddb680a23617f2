// Package table is the table of elections: how it is made, found and checked, its statements, and
// the meaning of the server's errors.
package table

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// DB is what a Table needs of pgx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Table is one table. All its methods may be called by several goroutines at once.
type Table struct {
	Quoted string // its name as given, as SQL takes it
	Mode   pgx.QueryExecMode

	db     DB
	name   string // as given
	create bool
	found  atomic.Pointer[Place]
}

// New returns the table of this name, perhaps with a schema before it. It does no I/O. With create,
// the first Find that does not find the table makes it.
func New(db DB, name string, mode pgx.QueryExecMode, create bool) *Table {
	return &Table{Quoted: quoted(name), Mode: mode, db: db, name: name, create: create}
}

// Check says what PostgreSQL would not allow of a table's and an election's name.
func Check(table, election string) (wrong error) {
	parts := strings.Split(table, ".")
	for _, p := range parts {
		if p == "" || len(p) > 63 || len(parts) > 2 || strings.ContainsRune(p, 0) {
			wrong = errors.New("the table's name must be one or two names with a dot between, each of 1 to 63 bytes")
		}
	}
	if election == "" || len(election) > 1000 || strings.ContainsRune(election, 0) {
		wrong = errors.Join(wrong, errors.New("the election's name must have 1 to 1000 bytes, none of them zero"))
	}
	return wrong
}

// Schema returns the statement that makes a table. Its pages keep room for the next version of each
// row.
func Schema(table string) string {
	return fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
	election text PRIMARY KEY,
	version text NOT NULL,
	written timestamptz NOT NULL,
	record json NOT NULL,
	channel text NOT NULL
) WITH (fillfactor = 50);
`, quoted(table))
}

// quoted is a table's name, perhaps with its schema's, as SQL takes it.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }

// Place is what Find learns once about the table. Its statements name the schema, since another
// session of the pool may have another search_path.
type Place struct {
	Server                  string // host and port, as the server knows itself; empty on a socket
	Database, Schema, Table string
	Statements
}

// String names the place without the server.
func (p *Place) String() string {
	return fmt.Sprintf("database %q, table %s", p.Database, pgx.Identifier{p.Schema, p.Table}.Sanitize())
}

// look is the query for a table's place and nature. The name is looked up as any
// statement would, by search_path.
const look = `
SELECT COALESCE(pg_catalog.host(pg_catalog.inet_server_addr()) || ':' || pg_catalog.inet_server_port(), ''), pg_catalog.current_database()::text, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, EXISTS (
	SELECT FROM pg_catalog.pg_index i
	JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
	WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
	AND i.indnkeyatts = 1 AND a.attname = 'election')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1::text)`

// Find returns the table's place. It asks once, and again if the table is unfit.
func (t *Table) Find(ctx context.Context) (*Place, error) {
	if p := t.found.Load(); p != nil {
		return p, nil
	}
	p, err := t.look(ctx)
	if errors.Is(err, errNoTable) && t.create {
		if err := t.make(ctx); err != nil {
			return nil, err
		}
		p, err = t.look(ctx)
	}
	if err != nil {
		return nil, err
	}
	t.found.Store(p)
	return p, nil
}

var errNoTable = errors.New("there is no such table")

func (t *Table) look(ctx context.Context) (*Place, error) {
	var p Place
	var kind, persistence string
	var unique bool
	err := t.db.QueryRow(ctx, look, t.Mode, t.Quoted).Scan(&p.Server, &p.Database, &p.Schema, &p.Table, &kind, &persistence, &unique)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, store.Wrong("%w: %s", errNoTable, t.makeIt())
	case err != nil:
		return nil, err
	case kind != "r":
		return nil, store.Wrong("it is not an ordinary table (relkind %q): name another", kind)
	case persistence == "u":
		return nil, store.Wrong("the table is UNLOGGED, and a crash of the server would empty it: ALTER TABLE %s SET LOGGED", t.Quoted)
	case persistence == "t":
		return nil, store.Wrong("the table is TEMPORARY, and no other session sees it: name another")
	case !unique:
		return nil, store.Wrong("the table has no unique index on its column election; it must be as in\n%s", Schema(t.name))
	}
	p.Statements = statements(pgx.Identifier{p.Schema, p.Table}.Sanitize())
	return &p, nil
}

// Qualified reports whether the name was given with its schema's.
func (t *Table) Qualified() bool { return strings.Contains(t.name, ".") }

// Found is what Find has found last, or nil.
func (t *Table) Found() *Place { return t.found.Load() }

// makeIt is what to do if there is no table.
func (t *Table) makeIt() string {
	return "make it, or set Options.CreateTable (create=true in an address):\n" + Schema(t.name)
}

// make makes the table. That another candidate makes it at the same moment is no
// error, though PostgreSQL says so.
func (t *Table) make(ctx context.Context) error {
	_, err := t.db.Exec(ctx, Schema(t.name), t.Mode)
	if c := Code(err); c == uniqueViolation || c == duplicateTable {
		return nil
	}
	return err
}
