package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The feed's connection is made as the pool's are, by the pool's own hooks: passwords
// that are good for one connection come from there.
func TestFeedConnectsAsThePoolDoes(t *testing.T) {
	server := stores.Postgres(t)
	exec(t, pool(t, server.Addr), `CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app; CREATE SCHEMA AUTHORIZATION app`, pgx.QueryExecModeSimpleProtocol)
	config, err := pgxpool.ParseConfig("postgres://nobody@" + server.Addr + "/postgres?sslmode=disable&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	var fails atomic.Bool
	failure := errors.New("no token to be had")
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.User = "app"
		if fails.Load() {
			return failure
		}
		return nil
	}
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET search_path = app")
		if fails.Load() {
			return failure
		}
		return err
	}
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	d := postgres.NewDecider(p, "leaderelection", "e", create)
	t.Run("works", func(t *testing.T) {
		feeds := []<-chan feedtest.Item{feedtest.Follow(t, d), feedtest.Follow(t, d)} // beside the pool, which has one connection
		for _, feed := range feeds {
			feedtest.Number(t, feed, 0)
		}
		feedtest.Write(t, d, 1, nil)
		for _, feed := range feeds {
			feedtest.Number(t, feed, 1)
		}
	})
	feedtest.Reads(t, postgres.NewDecider(pool(t, server.Addr), "app.leaderelection", "e", nil), 1)

	fails.Store(true)
	if n := feedtest.Next(t, feedtest.Follow(t, d)); !errors.Is(n.Err, failure) {
		t.Errorf("the feed yields %+v", n)
	}
}

// However many elections a process takes part in, one connection listens for all.
func TestSharedConnection(t *testing.T) {
	t.Parallel()
	const elections, most = 50, 4
	server := stores.Postgres(t)
	watch := pool(t, server.Addr)
	connections := func() (n int) {
		if err := watch.QueryRow(t.Context(), "SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'process'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	p := pool(t, server.Addr, "application_name=process") // of 4
	exec(t, watch, postgres.Schema("leaderelection"))
	for round := range uint64(2) {
		t.Run("", func(t *testing.T) {
			feeds := make([]<-chan feedtest.Item, elections)
			deciders := make([]*postgres.Decider, elections)
			for i := range feeds {
				deciders[i] = postgres.NewDecider(p, "leaderelection", fmt.Sprint("e", i), nil)
				feeds[i] = feedtest.Follow(t, deciders[i])
			}
			for i, feed := range feeds {
				feedtest.Write(t, deciders[i], round+1, feedtest.Number(t, feed, round).Token)
				if e := feedtest.Number(t, feed, round+1); e.LeaderID != "a" {
					t.Errorf("election %d: %+v", i, e)
				}
			}
			if n := connections(); n > most+1 {
				t.Errorf("%d elections have %d connections, want %d and one that listens", elections, n, most)
			}
			if round == 0 {
				return // all leave
			}
			exec(t, watch, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'process' AND query LIKE '%LISTEN%'")
			for i, feed := range feeds {
				feedtest.Passing(t, feedtest.Next(t, feed).Err, fmt.Sprintf(`"e%d"`, i), "57P01")
			}
			again := feedtest.Follow(t, deciders[0])
			feedtest.Number(t, again, round+1)
		})
		feedtest.Eventually(t, "nobody listens any more", func() bool { return connections() <= most })
	}
}

// A feed that is behind reads instead, and the others do not wait for it.
func TestSlowFollower(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	d := postgres.NewDecider(p, "leaderelection", "e", create)
	quick := feedtest.Follow(t, d)
	token := feedtest.Next(t, quick).Token
	const states = 100
	slow, at := make(chan struct{}), uint64(0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	up, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for e, err := range d.Changes(ctx) {
			if err != nil {
				t.Error(err)
				return
			}
			if n := uint64(e.ElectionNumber); n < at {
				t.Errorf("after %d the feed yields %d", at, n)
			} else if at = n; n == 0 {
				close(up)
				<-slow
			} else if n == states {
				return
			}
		}
	}()
	<-up
	for n := uint64(1); n <= states; n++ {
		token = feedtest.Write(t, d, n, token)
		feedtest.Number(t, quick, n)
	}
	close(slow)
	<-ended
	if at != states {
		t.Errorf("the slow one has come to %d of %d", at, states)
	}
}

// If there is no way to a connection of its own the feed is silent, and ends with
// its ctx.
func TestNoWayToListen(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	for name, d := range map[string]*postgres.Decider{
		"no pool":  postgres.NewDecider(struct{ postgres.DB }{p}, "leaderelection", "e", create),
		"NoListen": postgres.NewDecider(p, "leaderelection", "e", &postgres.Options{CreateTable: true, NoListen: true}),
	} {
		feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		for e, err := range d.Changes(ctx) {
			t.Errorf("%s: the feed yields %+v, %v", name, e, err)
		}
		if ctx.Err() == nil {
			t.Errorf("%s: the feed ended by itself", name)
		}
		cancel()
	}
}

// A table that is dropped is made again, if it may be, and else reported.
func TestTableDropped(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	maker, other := postgres.NewDecider(p, "leaderelection", "e", create), postgres.NewDecider(p, "leaderelection", "e", nil)
	token := feedtest.Write(t, maker, 1, nil)
	feedtest.Read(t, other)
	exec(t, p, "DROP TABLE leaderelection")
	feedtest.Permanent(t, feedtest.WriteError(t, other, 2, token), "42P01", "CREATE TABLE")
	feedtest.Passing(t, feedtest.ReadError(t, maker), "42P01", "made again")
	feedtest.Write(t, maker, 2, feedtest.Read(t, maker).Token)
	feedtest.Reads(t, other, 2)
}
