package mysql_test

import (
	"context"
	"log"
	"os"

	driver "github.com/go-sql-driver/mysql"

	"github.com/c8e606e4/leaderelection"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/deciders/sql/mysql"
)

// Of all processes that run this, one at a time does the job.
func Example() {
	config, err := driver.ParseDSN(os.Getenv("MYSQL_DSN")) // user:password@tcp(db:3306)/app
	if err != nil {
		log.Fatal(err)
	}
	db, err := mysql.NewDB(config)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	decider := lesql.NewDecider(db, mysql.Dialect(), "leaderelection", "nightly", &lesql.Options{CreateTable: true})
	log.Print(leaderelection.Config{Decider: decider, LeaderID: "web-1"}.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
