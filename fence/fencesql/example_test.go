package fencesql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/fence/fencesql"
)

func ExampleCondition() {
	fmt.Println("UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND " + fencesql.Condition("fence", "$2"))
	// Output:
	// UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND (fence IS NULL OR fence <= $2)
}

// A row that is its own fence: made, replaced, or left to a newer leadership.
func ExampleUpsert() {
	u, err := fencesql.NewUpsert(fencesql.PostgreSQL(), "orders", []string{"id"}, []string{"state"}, "fence")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(u.Text())
	// err = u.Exec(ctx, db, token, 17, "sent")
	// Output:
	// INSERT INTO orders AS f (id, state, fence) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET state = excluded.state, fence = excluded.fence WHERE (f.fence IS NULL OR f.fence <= excluded.fence)
}

// A transaction under a fence. Not run with the tests: it needs a database.
func ExampleTable_Do() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@db.example/app") // with import _ "github.com/jackc/pgx/v5/stdlib"
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	fences, err := fencesql.NewTable(fencesql.PostgreSQL(), "fences", nil)
	if err == nil {
		err = fences.Create(ctx, db)
	}
	if err != nil {
		log.Fatal(err)
	}
	token := fence.Token{Election: "orders", Number: 7} // Gate.Token returns it
	err = fences.Do(ctx, db, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'sent' WHERE id = 17")
		return err
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("another one leads: nothing was written")
	}
}
