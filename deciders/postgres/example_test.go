package postgres_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
)

// Of all processes that run this, one at a time does the job.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	config := leaderelection.Config{
		Decider:  postgres.NewDecider(pool, "leaderelection", "nightly", &postgres.Options{CreateTable: true}),
		LeaderID: "web-1",
	}
	err = config.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading in election", view.ElectionNumber(), view.ValueInFuture())
		return nil
	})
	fmt.Println(err)
}
