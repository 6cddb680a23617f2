// Fencing shows what no lease can prevent, and how a database prevents it: a leader that
// stands still between asking its view and writing, and writes when another one leads
// already.
//
//	go run ./examples/fencing
//
// The first leader asks its view, is told that it may write, and stands still there and
// then, for longer than its term. The second takes over and writes. Then the first goes
// on, and does what it was about to do, to two tables. One is fenced: the first's fencing
// token is smaller than one that was seen, and the write is refused. The other is not, and
// there it undoes the new leader's work. What the first tries after that does not even
// reach the database: its view has ended.
//
// The election is kept in memory and the tables in SQLite, so that there is nothing to
// install. On PostgreSQL or MySQL only the dialect and the driver are others. The program
// fails if the fenced table holds the late write, or the other one does not.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencesql"
)

const (
	election = "orders"
	term     = 2 * time.Second // short, so that there is little to wait for; the default is 15 s
)

func main() {
	if err := show(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
}

// show plays the scene, and checks what the tables hold at its end.
func show(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "leaderelection-fencing")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	orders, err := open(ctx, filepath.Join(dir, "orders.db"))
	if err != nil {
		return err
	}
	defer orders.db.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel() // both campaigns end, too
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	write := func(token fence.Token, name string) {
		say("          the fenced table:   %s", outcome(orders.writeFenced(ctx, token, name)))
		say("          the unfenced table: %s", outcome(orders.writeUnfenced(ctx, name)))
	}
	record := memory.NewDecider() // a real program uses a store that all can reach

	connection := record.Handle()
	first, err := lead(ctx, connection, "first")
	if err != nil {
		return err
	}
	late, err := first.Token()
	if err != nil {
		return err
	}
	say("first   leads with token %d, has asked its view, and is told that it may write", late.Number)
	connection.Inject(memory.LoseRequests()) // who stands still does not renew
	begin := time.Now()
	say("first   stands still at that very moment; its term is %v", term)

	second, err := lead(ctx, record.Handle(), "second")
	if err != nil {
		return err
	}
	token, err := second.Token()
	if err != nil {
		return err
	}
	say("second  leads with token %d, %.1f s later, and writes", token.Number, time.Since(begin).Seconds())
	write(token, "second")

	// A program would pass the leader's ctx, which by now has been cancelled, and would
	// mostly be spared. But a write can be on its way when that happens, as this one is.
	say("first   goes on, and writes what it was about to write")
	write(late, "first")
	say("first   wants to write once more, and asks its view right before")
	_, err = first.Token()
	say("          %s", outcome(err))

	fenced, err1 := orders.writer(ctx, "fenced")
	unfenced, err2 := orders.writer(ctx, "unfenced")
	say("the fenced table holds what %s wrote, the unfenced one what %s wrote", fenced, unfenced)
	return cmp.Or(err1, err2, proof(fenced, unfenced))
}

// lead campaigns until ctx ends, and returns when it leads.
func lead(ctx context.Context, record *memory.Decider, name string) (fence.Gate, error) {
	campaign, err := leaderelection.Config{
		Decider:    record,
		LeaderID:   name,
		TermLength: term, ClockPolicy: leaderelection.SharedClock, // one machine
		Logger: slog.New(slog.DiscardHandler), // the scene tells it; leave it out in a program of yours
	}.Start(ctx)
	if err != nil {
		return fence.Gate{}, err
	}
	l, err := campaign.Lead(ctx)
	if err != nil {
		return fence.Gate{}, err
	}
	context.AfterFunc(ctx, l.Release)
	return fence.Gate{View: l.View(), Election: election}, nil
}

func outcome(err error) string {
	if err == nil {
		return "accepted"
	}
	return "REFUSED: " + err.Error()
}

// proof is what the scene is to show.
func proof(fenced, unfenced string) error {
	switch {
	case fenced != "second":
		return errors.New("the late write of a deposed leader was accepted, in spite of the fence")
	case unfenced != "first":
		return errors.New("the late write was not accepted without a fence either: it shows nothing")
	}
	return nil
}

// tables are what the leaders write to: two of one row each, which says who wrote it last,
// and one of fences.
type tables struct {
	db     *sql.DB
	fences *fencesql.Table
}

// open makes them in a new database.
func open(ctx context.Context, file string) (*tables, error) {
	fences, err := fencesql.NewTable(fencesql.SQLite(), "fences", nil)
	if err != nil {
		return nil, err
	}
	// Of SQLite, fencesql wants transactions that begin as immediate ones.
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(file)+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `
		CREATE TABLE fenced   (writer TEXT NOT NULL); INSERT INTO fenced   VALUES ('nobody');
		CREATE TABLE unfenced (writer TEXT NOT NULL); INSERT INTO unfenced VALUES ('nobody')`)
	if err := cmp.Or(err, fences.Create(ctx, db)); err != nil {
		_ = db.Close()
		return nil, err
	}
	return &tables{db, fences}, nil
}

// writeFenced writes under a token: the check is part of the transaction.
func (t *tables) writeFenced(ctx context.Context, token fence.Token, name string) error {
	return t.fences.Do(ctx, t.db, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE fenced SET writer = ?", name)
		return err
	})
}

// writeUnfenced is the same without a fence.
func (t *tables) writeUnfenced(ctx context.Context, name string) error {
	_, err := t.db.ExecContext(ctx, "UPDATE unfenced SET writer = ?", name)
	return err
}

// writer returns who wrote a table last.
func (t *tables) writer(ctx context.Context, table string) (name string, err error) {
	err = t.db.QueryRowContext(ctx, "SELECT writer FROM "+table).Scan(&name)
	return name, err
}
