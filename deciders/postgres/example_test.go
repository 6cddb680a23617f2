package postgres_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
)

// Of all processes that run this, one at a time does the job.
func Example() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	decider := postgres.NewDecider(pool, "leaderelection", "nightly", &postgres.Options{CreateTable: true})
	log.Print(leaderelection.Config{Decider: decider, LeaderID: "web-1"}.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
