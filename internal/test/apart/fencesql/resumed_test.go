package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
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

// interest is a job that continues where the last run has stopped: the table says what is due.
type interest struct {
	db     *sql.DB
	fences *fencesql.Table
	day    string
	booked func(ctx context.Context, account int64)
}

func (i *interest) run(ctx context.Context, view *leaderelection.TimeView) error {
	gate := fence.Gate{View: view, Election: "interest"}
	for ctx.Err() == nil {
		token, err := gate.Token() // asks the view
		if err != nil {
			return err
		}
		var account int64
		err = i.fences.Do(ctx, i.db, token, func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, `UPDATE accounts SET balance = balance * 1.01, booked = $1
				WHERE id = (SELECT min(id) FROM accounts WHERE booked < $1) RETURNING id`, i.day).Scan(&account)
		})
		if errors.Is(err, sql.ErrNoRows) {
			return nil // nothing is due any more: the Hold begins
		}
		if err != nil {
			return err
		}
		i.booked(ctx, account)
	}
	return context.Cause(ctx)
}

// A job is done once a night, and continued if its machine ends in the middle of it.
func Example_resumed() {
	dir, err := os.MkdirTemp("", "resumed")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "db")+"?_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	fences, err := fencesql.NewTable(fencesql.SQLite(), "fences", nil)
	if err == nil {
		err = fences.Create(context.Background(), db)
	}
	if err == nil {
		_, err = db.Exec("CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance REAL, booked TEXT); INSERT INTO accounts VALUES (1, 100, ''), (2, 100, ''), (3, 100, '')")
	}
	if err != nil {
		log.Fatal(err)
	}
	election := memory.NewDecider() // in earnest: a store that all machines reach

	for _, machine := range []string{"a", "b", "c"} {
		ctx, stop := context.WithCancelCause(context.Background())
		job := &interest{db, fences, "2026-11-28", func(ctx context.Context, account int64) {
			fmt.Println(machine, "has booked account", account)
			if machine == "a" {
				stop(errors.New("the machine shuts down"))
				<-ctx.Done() // the leader's ctx ends a moment later
			}
		}}
		err := leaderelection.Config{
			Decider:  election.Handle(),
			LeaderID: machine,
			Logger:   slog.New(slog.DiscardHandler),
		}.Once(ctx, leaderelection.OnceOptions{
			Hold:          12 * time.Hour, // the job is due once a day
			HoldOnSuccess: true,
		}, job.run)
		switch {
		case errors.Is(err, leaderelection.ErrNotElected):
			fmt.Println(machine, "has nothing to do")
		case err != nil:
			fmt.Println(machine, "has not finished")
		default:
			fmt.Println(machine, "has finished")
		}
		stop(nil)
	}
	var all float64
	if err := db.QueryRow("SELECT sum(balance) FROM accounts").Scan(&all); err != nil {
		log.Fatal(err)
	}
	fmt.Println("all accounts together:", all)
	// Output:
	// a has booked account 1
	// a has not finished
	// b has booked account 2
	// b has booked account 3
	// b has finished
	// c has nothing to do
	// all accounts together: 303
}
