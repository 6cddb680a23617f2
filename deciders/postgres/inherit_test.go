package postgres

import (
	"errors"
	"strings"
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

// Without a pool each call is an error, as with other stores.
func TestNoPool(t *testing.T) {
	for _, db := range []DB{nil, (*pgxpool.Pool)(nil)} {
		d := NewDecider(db, "t", "e", nil)
		_, err := d.ReadCurrent(t.Context())
		_, writeErr := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{LeaderID: "a"})
		for _, err := range []error{err, writeErr} {
			if !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), "the pool is nil") {
				t.Error(err)
			}
		}
		for _, err := range d.Changes(t.Context()) {
			if !errors.Is(err, leaderelection.ErrPermanent) {
				t.Error(err)
			}
		}
	}
}
