package sqlite_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/c8e606e4/leaderelection"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/deciders/sql/sqlite"
)

// Of all processes of this machine that run this, one at a time does the job.
func Example() {
	dir, err := os.MkdirTemp("", "election") // in a real program where its database is
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sqlite.NewDB(filepath.Join(dir, "app.db"), &sqlite.Options{Create: true}) // without: the file must be there
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	decider := lesql.NewDecider(db, sqlite.Dialect(), "leaderelection", "nightly", &lesql.Options{CreateTable: true})
	config := leaderelection.Config{Decider: decider, LeaderID: "worker-1", ClockPolicy: leaderelection.SharedClock}
	err = config.Run(context.Background(), func(_ context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading:", view.ElectionNumber() > 0, view.ValueInFuture())
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading: true true
	// <nil>
}
