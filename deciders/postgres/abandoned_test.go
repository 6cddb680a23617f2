package postgres_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The pool that Open makes leaves all its connections that have died without a word, and not only
// that of the call.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, stores.Postgres(t).Addr)
	d := opened(t, "postgres://postgres@"+relay.Addr+"/postgres?sslmode=disable&pool_min_conns=3&election=e&create=true")
	feedtest.Read(t, d) // makes the table
	feedtest.Abandons(t, d, relay.Swallow)
}

// After a fail-over behind an address that stays, the old primary answers on the connections that
// there are, and takes no writes. Both the pool that Open makes and a caller's leave it.
func TestReadOnlyConnectionLeavesThePool(t *testing.T) {
	old, primary := stores.Postgres(t), stores.Postgres(t)
	relay := stores.NewRelay(t, old.Addr)
	deciders := map[string]*postgres.Decider{
		"open":   opened(t, "postgres://postgres@"+relay.Addr+"/postgres?sslmode=disable&election=open&create=true"),
		"caller": postgres.NewDecider(pool(t, relay.Addr), "leaderelection", "caller", create),
	}
	tokens := map[string]leaderelection.LeaderToken{}
	for name, d := range deciders {
		tokens[name] = feedtest.Write(t, d, 1, nil)
	}
	feedtest.Read(t, postgres.NewDecider(pool(t, primary.Addr), "leaderelection", "any", create)) // makes the table
	admin := pool(t, old.Addr)
	exec(t, admin, "ALTER SYSTEM SET default_transaction_read_only = on")
	exec(t, admin, "SELECT pg_reload_conf()")
	relay.Lead(primary.Addr)
	for name, d := range deciders {
		t.Run(name, func(t *testing.T) {
			at, err := tokens[name], error(nil)
			feedtest.Eventually(t, "the old primary takes no writes", func() bool { // its sessions hear of it by and by
				if next, refused := d.WriteEntry(t.Context(), feedtest.State(2, at)); refused == nil {
					at = next
				} else {
					err = refused
				}
				return err != nil
			})
			feedtest.Passing(t, err, "25006")
			feedtest.Reads(t, d, 0)
			feedtest.Write(t, d, 3, nil)
		})
	}
}
