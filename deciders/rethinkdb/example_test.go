package rethinkdb_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
)

func ExampleNewDecider() {
	session, err := r.Connect(r.ConnectOpts{
		Addresses:    []string{"db-0:28015", "db-1:28015", "db-2:28015"},
		ReadTimeout:  5 * time.Second, // so that nothing is left behind by a server
		WriteTimeout: 5 * time.Second, // that does not answer
	})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	decider := rethinkdb.NewDecider(session, "ops", "elections", "web", nil)
	host, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	err = leaderelection.Config{
		Decider:  decider,
		LeaderID: host,
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			for view.ValueInFuture() {
				fmt.Println("acting with fencing token", view.ElectionNumber())
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Second):
				}
			}
		},
	}.Acquire(context.Background())
	log.Fatal(err)
}
