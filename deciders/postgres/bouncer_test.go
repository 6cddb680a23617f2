package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// Behind a pooler in transaction mode, in which each statement may be another session's:
// all of a decider's contract, its feed listening on a direct connection.
func TestConformanceBehindAPooler(t *testing.T) {
	stores.Nightly(t, "the suite once more")
	server := stores.Postgres(t)
	bouncer := stores.PgBouncer(t, server, 3)
	config, err := pgx.ParseConfig("postgres://postgres@" + server.Addr + "/postgres?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		name := feedtest.Unique()
		return func() leaderelection.RaceDecider {
			return postgres.NewDecider(pool(t, bouncer.Addr), "leaderelection", name, &postgres.Options{
				CreateTable: true,
				Listen:      func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config) },
			})
		}
	}, nil)
}

// A feed that listens through such a pooler finds out that it is deaf, and one on a
// standby that it cannot listen: it says so once, and is silent from then on. It leaves
// no session listening.
func TestDeafFeed(t *testing.T) {
	stores.Nightly(t, "it starts a standby")
	t.Parallel()
	server := stores.Postgres(t)
	d := postgres.NewDecider(pool(t, server.Addr), "leaderelection", "e", create)
	feedtest.Write(t, d, 1, nil)
	standby := stores.PostgresStandby(t, server)
	for name, addr := range map[string]string{"pooler": stores.PgBouncer(t, server, 3).Addr, "LISTEN during recovery": standby.Addr} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := opened(t, "postgres://postgres@"+addr+"/postgres?sslmode=disable&election=e")
			feed := feedtest.Follow(t, d)
			feedtest.Passing(t, feedtest.Next(t, feed).Err, name, "listen_url", "listen=false")
			if n, more := <-feed; more {
				t.Errorf("after its error the feed yields %+v", n)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			for e, err := range d.Changes(ctx) {
				t.Errorf("the second feed yields %+v, %v", e, err)
			}
			if ctx.Err() == nil {
				t.Error("the second feed has ended of its own accord")
			}
		})
	}
}

// If nobody can listen, candidates and observers poll.
func TestElectionBehindAPooler(t *testing.T) {
	server := stores.Postgres(t)
	bouncer := stores.PgBouncer(t, server, 3)
	for name, more := range map[string]string{
		"told":                "&listen=false",
		"found out":           "",
		"the simple protocol": "&listen=false&default_query_exec_mode=simple_protocol",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := "postgres://postgres@" + bouncer.Addr + "/postgres?sslmode=disable&create=true&election=" + strings.ReplaceAll(name, " ", "+") + more
			elected := make(chan string, 2)
			run := func(id string) (leave func()) {
				ctx, cancel := context.WithCancel(t.Context())
				c, err := leaderelection.Config{
					Decider: opened(t, address), LeaderID: id, TermLength: 2 * time.Second,
					OnElected: func(context.Context, *leaderelection.TimeView) { elected <- id },
				}.Start(ctx)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { cancel(); _ = c.Wait() })
				return cancel
			}
			leave := run("first")
			<-elected
			run("second")
			select {
			case id := <-elected:
				t.Fatalf("%s is elected, too", id)
			case <-time.After(5 * time.Second): // more than a term, and than it takes to find out
			}
			left := time.Now()
			leave()
			<-elected
			t.Logf("another leads %v after the first has left", time.Since(left).Round(time.Millisecond))
		})
	}
}
