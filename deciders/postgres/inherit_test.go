package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
)

// A record that may not be on the standbys stays in doubt with a new client.
func TestInherit(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/x")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	first, second := NewDecider(pool, "t", "e", nil), NewDecider(pool, "t", "e", nil)
	first.b.doubts.Begin("i") // has no response
	read := &leaderelection.RaceEntry{Incarnation: "i", Token: token{version: "1"}}
	if second.Inherit(first); !second.b.inDoubt(read) {
		t.Error("the new client takes the record for safe")
	}
}
