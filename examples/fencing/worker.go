//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/fence"
)

// What a worker's process is told by its environment.
const (
	workerEnv = "EXAMPLE_FENCING_WORKER"
	dsnEnv    = "EXAMPLE_FENCING_DSN"
	schemaEnv = "EXAMPLE_FENCING_SCHEMA"
)

const (
	// election is its name, in its record and in tokens.
	election = "orders"
	term     = 2 * time.Second
)

// workMain is main in a worker's process.
func workMain(name string) int {
	if err := work(name); err != nil {
		fmt.Fprintf(os.Stderr, "fencing: worker %s: %v\n", name, err)
		return 1
	}
	return 0
}

// work campaigns in the election, and as the leader writes: once after it has asked its
// view, however late that is, and then by its write gate. Each write waits for a
// line on standard input, so that the scene can stop the process in between.
func work(name string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Getenv(dsnEnv))
	if err != nil {
		return err
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	t, err := newTables(db, os.Getenv(schemaEnv))
	if err != nil {
		return err
	}
	err = leaderelection.Config{
		Decider:    postgres.NewDecider(pool, t.schema+".elections", election, nil),
		LeaderID:   name,
		TermLength: term, ClockPolicy: leaderelection.SharedClock, // one machine
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			defer cancel()
			lead(ctx, t, name, fence.Gate{View: view, Election: election})
		},
	}.Acquire(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// lead is the leader's work.
func lead(ctx context.Context, t *tables, name string, gate fence.Gate) {
	turns := bufio.NewScanner(os.Stdin)
	token, err := gate.Token()
	if err != nil {
		return
	}
	fmt.Println(token) // It may write. And so it could, if it were quick.
	if !turns.Scan() {
		return
	}
	// A program would pass ctx, which by now has been cancelled, and would mostly
	// be spared. But a write can be on its way when that happens, and this one is
	// to be.
	ctx = context.WithoutCancel(ctx)
	tell(t.writeFenced(ctx, token, name))
	tell(t.writeUnfenced(ctx, name))
	for turns.Scan() {
		// Here the view is asked again, and no time passes in between.
		if token, err = gate.Token(); err != nil {
			tell(err)
			tell(err)
			continue
		}
		tell(t.writeFenced(ctx, token, name))
		tell(t.writeUnfenced(ctx, name))
	}
}

// tell says in one line what became of a write.
func tell(err error) {
	if err == nil {
		fmt.Println("accepted")
		return
	}
	fmt.Println("REFUSED: " + strings.ReplaceAll(err.Error(), "\n", " "))
}
