package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Schema returns the statement that makes the table, for those who migrate by
// hand. Table is as for NewDecider. The room that its pages keep free is for the
// next version of each row.
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

// place is what is found out about the table once.
type place struct {
	schema, table string
}

// found is the query for a table's place and nature. The name is looked up as any
// statement would, by search_path.
const found = `
SELECT n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, EXISTS (
	SELECT FROM pg_catalog.pg_index i
	JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
	WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
	AND i.indnkeyatts = 1 AND a.attname = 'election')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1::text)`

// find returns the table's place. It asks once; a table that does not do is asked
// about again.
func (b *backend) find(ctx context.Context) (*place, error) {
	if p := b.found.Load(); p != nil {
		return p, nil
	}
	p, err := b.look(ctx)
	if errors.Is(err, errNoTable) && b.opts.CreateTable {
		if err := b.create(ctx); err != nil {
			return nil, err
		}
		p, err = b.look(ctx)
	}
	if err != nil {
		return nil, err
	}
	b.found.Store(p)
	return p, nil
}

var errNoTable = errors.New("there is no such table")

func (b *backend) look(ctx context.Context) (*place, error) {
	var p place
	var kind, persistence string
	var unique bool
	err := b.db.QueryRow(ctx, found, b.mode, b.quoted).Scan(&p.schema, &p.table, &kind, &persistence, &unique)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, store.Wrong("%w: %s", errNoTable, b.makeIt())
	case err != nil:
		return nil, err
	case kind != "r":
		return nil, store.Wrong("it is no ordinary table (relkind %q): name another", kind)
	case persistence == "u":
		return nil, store.Wrong("the table is UNLOGGED, and a crash of the server would empty it: ALTER TABLE %s SET LOGGED", b.quoted)
	case persistence == "t":
		return nil, store.Wrong("the table is TEMPORARY, and no other session sees it: name another")
	case !unique:
		return nil, store.Wrong("the table has no unique index on its column election; it must be as in\n%s", Schema(b.table))
	}
	return &p, nil
}

// makeIt is what to do where there is no table.
func (b *backend) makeIt() string {
	return "make it, or set Options.CreateTable (create=true in an address):\n" + Schema(b.table)
}

// create makes the table. That another candidate makes it at the same moment is no
// error, though PostgreSQL says so.
func (b *backend) create(ctx context.Context) error {
	_, err := b.db.Exec(ctx, Schema(b.table), b.mode)
	if c := code(err); c == uniqueViolation || c == duplicateTable {
		return nil
	}
	return err
}
