package rethinkdb_test

import (
	"context"
	"log"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
)

// The Example of package memory is a whole election.
func ExampleNewDecider() {
	const limit = 5 * time.Second // so that a server that does not answer leaves nothing behind
	session, err := r.Connect(r.ConnectOpts{Addresses: []string{"db-0:28015", "db-1:28015"}, ReadTimeout: limit, WriteTimeout: limit})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	config := leaderelection.Config{Decider: rethinkdb.NewDecider(session, "ops", "elections", "web", nil), LeaderID: "web-1"}
	log.Print(config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
