package rethinkdb

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"
)

// createSpread is the time within which each of those who find no table chooses the
// moment to make it.
const createSpread = 2 * time.Second

// Create makes the database and the table where they are missing, and waits until the
// table takes writes. A table that it makes has so many replicas, at least 1; an odd
// number above that survives the loss of a minority. It needs the permission config to
// make what is missing (the table: on the database; the database: everywhere), and none
// where there is nothing to make.
//
// RethinkDB does not keep two who make one table at once from making two, after which
// every query for it fails. So Create waits for a moment of up to 2 s, by chance, and looks
// again, before it makes a table; and if there are two all the same it says so, and how
// to remove one: which one has the records, it cannot know. Better let one process call
// it, before the others begin.
func (d *Decider) Create(ctx context.Context, replicas int) error {
	const doing = "creating the table of"
	if err := d.election.Ready(ctx); err != nil {
		return d.election.Failed(ctx, doing, err)
	}
	if d.lacks(ctx) != nothing {
		pause := time.NewTimer(rand.N(createSpread))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return d.election.Failed(ctx, doing, ctx.Err())
		}
	}
	var make []r.Term
	lacks := d.lacks(ctx)
	if lacks == aDatabase {
		make = append(make, r.DBCreate(d.b.database))
	}
	if lacks != nothing {
		make = append(make, r.DB(d.b.database).TableCreate(d.b.table, r.TableCreateOpts{PrimaryKey: "id", Durability: "hard", Replicas: max(1, replicas)}))
	}
	make = append(make, r.DB(d.b.database).Table(d.b.table).Wait(r.WaitOpts{WaitFor: "ready_for_writes"}))
	for _, term := range make {
		if _, err := query[any](ctx, d.b, term); err != nil && !strings.Contains(said(err), "already exists") {
			return d.election.Failed(ctx, doing, err)
		}
	}
	if _, err := query[*row](ctx, d.b, d.b.get()); err != nil {
		return d.election.Failed(ctx, doing, err)
	}
	return nil
}

// What there is to make.
type lack int

const (
	nothing lack = iota
	aTable
	aDatabase // and the table
)

// lacks looks what there is to make, which a read tells: to list tables is no use, where
// one may not see them.
func (d *Decider) lacks(ctx context.Context) lack {
	_, err := query[*row](ctx, d.b, d.b.get())
	if err == nil || !strings.Contains(said(err), "does not exist") {
		return nothing
	}
	if strings.Contains(said(err), "Database `") {
		return aDatabase
	}
	return aTable
}
