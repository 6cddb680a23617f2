//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencesql"
)

// tables are what the leaders write to: two of one row each, which says who wrote
// it last, and one of fences. The election is in a table beside them.
type tables struct {
	db     *sql.DB
	schema string
	fences *fencesql.Table
}

func newTables(db *sql.DB, schema string) (*tables, error) {
	fences, err := fencesql.NewTable(fencesql.PostgreSQL, schema+".fences", nil)
	return &tables{db, schema, fences}, err
}

// create makes them in a schema of their own, so that they touch nothing.
func (t *tables) create(ctx context.Context) error {
	for _, q := range []string{
		"CREATE SCHEMA " + t.schema,
		postgres.Schema(t.schema + ".elections"),
		"CREATE TABLE " + t.schema + ".fenced (writer TEXT NOT NULL)",
		"CREATE TABLE " + t.schema + ".unfenced (writer TEXT NOT NULL)",
		"INSERT INTO " + t.schema + ".fenced VALUES ('nobody')",
		"INSERT INTO " + t.schema + ".unfenced VALUES ('nobody')",
	} {
		if _, err := t.db.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return t.fences.Create(ctx, t.db)
}

func (t *tables) drop(ctx context.Context) error {
	_, err := t.db.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+t.schema+" CASCADE")
	return err
}

// writeFenced writes under a token: the check is part of the transaction.
func (t *tables) writeFenced(ctx context.Context, token fence.Token, name string) error {
	return t.fences.Do(ctx, t.db, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE "+t.schema+".fenced SET writer = $1", name)
		return err
	})
}

// writeUnfenced is the same without a fence.
func (t *tables) writeUnfenced(ctx context.Context, name string) error {
	_, err := t.db.ExecContext(ctx, "UPDATE "+t.schema+".unfenced SET writer = $1", name)
	return err
}

// holds returns who wrote a table last.
func (t *tables) holds(ctx context.Context, table string) (writer string, err error) {
	err = t.db.QueryRowContext(ctx, "SELECT writer FROM "+t.schema+"."+table).Scan(&writer)
	return writer, err
}
