package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

// On a way on which each answer takes 2 ms, so that what counts is how often a
// hand-over goes to and fro. Without that it is the machine: to end a session, as the
// one that leaves does with its feed's, costs PostgreSQL more than to write.
func TestHandover(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	proxy := stores.NewRelay(t, stores.Postgres(t).Addr)
	proxy.Delay(2 * time.Millisecond)
	feedtest.Handover(t, pg.Elections(proxy.Addr))
}

// A statement is a request, be it LISTEN or whatever.
func TestIdle(t *testing.T) {
	stores.Nightly(t, "it counts requests for ten terms")
	t.Parallel()
	server := stores.Postgres(t, "shared_preload_libraries=pg_stat_statements")
	p := pool(t, server.Addr)
	exec(t, p, "CREATE EXTENSION pg_stat_statements")
	feedtest.Idle(t, pg.Elections(server.Addr), func() int {
		return value[int](t, p, "SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'")
	})
}

func TestNews(t *testing.T) {
	pg.News(t, func(addr string) {
		exec(t, pool(t, addr), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
	})
}

func TestOutage(t *testing.T) { pg.Outage(t) }

func TestSilence(t *testing.T) { pg.Silence(t, "the server does not answer") }

// A change that was not notified, since it was made by hand, is news after a silence.
func TestUnnotifiedChange(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	d := postgres.NewDecider(p, "leaderelection", "e", &postgres.Options{CreateTable: true, FeedSilence: 200 * time.Millisecond})
	feedtest.Write(t, d, 1, nil)
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	exec(t, p, `UPDATE leaderelection SET version = 'by hand', record = replace(record::text, '"election_number":1', '"election_number":2')::json`)
	feedtest.Number(t, feed, 2)
	feedtest.Write(t, d, 3, feedtest.Read(t, d).Token)
	feedtest.Number(t, feed, 3)
}

// A record that is too long for a notification, or nearly so, is news all the same.
func TestLongRecords(t *testing.T) {
	d := decider(pool(t, stores.Postgres(t).Addr))
	feed := feedtest.Follow(t, d)
	token := feedtest.Next(t, feed).Token
	for i, size := range []int{0, 5000, 5500, 5560, 5600, 5650, 5700, 5760, 5800, 5830, 5900, 6000, 7900, 100000} {
		e := feedtest.State(uint64(i+1), token)
		e.ConnectionParams = make([]byte, size)
		var err error
		if token, err = d.WriteEntry(t.Context(), e); err != nil {
			t.Fatalf("with %d bytes: %v", size, err)
		}
		if n := feedtest.Next(t, feed); n.Err != nil || n.ElectionNumber != e.ElectionNumber || len(n.ConnectionParams) != size || n.Token != token {
			t.Errorf("with %d bytes: %+v", size, n)
		}
	}
}

// A row that is deleted and made again is followed on, from where it is newer than
// what was known.
func TestRowMadeAgain(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	d := decider(p)
	feed := feedtest.Follow(t, d)
	old := feedtest.Write(t, d, 1, feedtest.Next(t, feed).Token)
	feedtest.Next(t, feed)
	for number := uint64(2); number < 5; number++ {
		exec(t, p, "DELETE FROM leaderelection")
		token := feedtest.Write(t, d, number, feedtest.Read(t, d).Token)
		if n := feedtest.Next(t, feed); n.Err != nil || uint64(n.ElectionNumber) != number || n.Token != token {
			t.Errorf("made again: %+v", n)
		}
		if _, err := d.WriteEntry(t.Context(), feedtest.State(99, old)); err == nil {
			t.Error("a version from before the deletion is taken")
		}
		old = token
	}
	feedtest.Write(t, d, 9, old)
	feedtest.Number(t, feed, 9)
}

// Whoever may use the database, and not the table, can neither forge news nor hear
// any.
func TestOthersOfTheDatabase(t *testing.T) {
	server := stores.Postgres(t)
	p := pool(t, server.Addr)
	d := decider(p)
	feed := feedtest.Follow(t, d)
	token := feedtest.Write(t, d, 1, feedtest.Next(t, feed).Token)
	feedtest.Next(t, feed)
	known := value[string](t, p, `SELECT 'leaderelection_' || left(encode(sha256('public'::bytea || '\x00' || 'leaderelection'::bytea || '\x00' || 'e'::bytea), 'hex'), 32)`)
	exec(t, p, "CREATE ROLE stranger LOGIN")
	stranger, err := pgxpool.New(t.Context(), fmt.Sprintf("postgres://stranger@%s/postgres?sslmode=disable", server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	ear, err := stranger.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ear.Release()
	if _, err := ear.Exec(t.Context(), "LISTEN "+known); err != nil {
		t.Fatal(err)
	}
	forged := `1 forged` + "\n" + `{"leaderelection":1,"leader_id":"mallory","term_expiry":"2099-01-01T00:00:00Z","term_length":"1h0m0s","election_number":99,"extension":0,"incarnation":"m"}`
	for _, payload := range []string{forged, "", "1 x\n{}", "x"} {
		exec(t, stranger, "SELECT pg_notify($1, $2)", known, payload)
	}
	feedtest.Write(t, d, 2, token)
	if n := feedtest.Next(t, feed); n.Err != nil || n.ElectionNumber != 2 || n.LeaderID == "mallory" {
		t.Errorf("the feed yields %+v", n)
	}
	exec(t, stranger, "SELECT pg_notify($1, 'end')", known)
	for {
		n, err := ear.Conn().WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n.Payload == "end" {
			break
		}
		if strings.Contains(n.Payload, "leader_id") && n.Payload != forged {
			t.Errorf("a stranger hears %q", n.Payload)
		}
	}
	exec(t, p, "DELETE FROM leaderelection")
	feedtest.Write(t, d, 3, nil)
	if n, err := ear.Conn().WaitForNotification(t.Context()); err != nil || n.Payload != "" {
		t.Errorf("that a row was made is told as %v, %v", n, err)
	}
	if n := feedtest.Next(t, feed); n.ElectionNumber != leaderelection.ElectionNumber(3) {
		t.Errorf("the feed yields %+v", n)
	}
}

// The feed's connection is made as the pool's are, by the pool's own hooks: passwords
// that are good for one connection come from there.
func TestFeedConnectsAsThePoolDoes(t *testing.T) {
	server := stores.Postgres(t)
	exec(t, pool(t, server.Addr), `CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app; CREATE SCHEMA AUTHORIZATION app`, pgx.QueryExecModeSimpleProtocol)
	var fails atomic.Bool
	failure := errors.New("no token to be had")
	p := adjusted(t, server.Addr, "pool_max_conns=1", func(config *pgxpool.Config) {
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
	})
	d := decider(p)
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
	connections := func() int {
		return value[int](t, watch, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'process'")
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
	d := decider(p)
	quick := feedtest.Follow(t, d)
	token := feedtest.Next(t, quick).Token
	const states = 100
	next, stop := iter.Pull2(d.Changes(t.Context()))
	defer stop()
	next() // and takes no more for a while
	for n := uint64(1); n <= states; n++ {
		token = feedtest.Write(t, d, n, token)
		feedtest.Number(t, quick, n)
	}
	for at := uint64(0); at < states; {
		e, err, more := next()
		if !more || err != nil || uint64(e.ElectionNumber) < at {
			t.Fatalf("after %d the feed yields %+v, %v", at, e, err)
		}
		at = uint64(e.ElectionNumber)
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
		t.Run(name, func(t *testing.T) {
			feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
			stillFeed(t, d, 300*time.Millisecond)
		})
	}
}

// stillFeed fails the test if a feed yields something, or ends by itself.
func stillFeed(t *testing.T, d *postgres.Decider, during time.Duration) {
	t.Helper()
	ctx := storetest.Within(t, during)
	for e, err := range d.Changes(ctx) {
		t.Errorf("the feed yields %+v, %v", e, err)
	}
	if ctx.Err() == nil {
		t.Error("the feed has ended of its own accord")
	}
}

// A table that is dropped is made again, if it may be, and else reported.
func TestTableDropped(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	maker, other := decider(p), postgres.NewDecider(p, "leaderelection", "e", nil)
	token := feedtest.Write(t, maker, 1, nil)
	feedtest.Read(t, other)
	exec(t, p, "DROP TABLE leaderelection")
	feedtest.Permanent(t, feedtest.WriteError(t, other, 2, token), "42P01", "CREATE TABLE")
	feedtest.Passing(t, feedtest.ReadError(t, maker), "42P01", "made again")
	feedtest.Write(t, maker, 2, feedtest.Read(t, maker).Token)
	feedtest.Reads(t, other, 2)
}

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
	d := decider(pool(t, server.Addr))
	feedtest.Write(t, d, 1, nil)
	standby := stores.PostgresStandby(t, server)
	for name, addr := range map[string]string{"pooler": stores.PgBouncer(t, server, 3).Addr, "LISTEN during recovery": standby.Addr} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := opened(t, addr, "")
			feed := feedtest.Follow(t, d)
			feedtest.Passing(t, feedtest.Next(t, feed).Err, name, "listen_url", "listen=false")
			if n, more := <-feed; more {
				t.Errorf("after its error the feed yields %+v", n)
			}
			stillFeed(t, d, 3*time.Second)
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
			address := pg.At(bouncer.Addr, url.QueryEscape(name)) + more
			elected := make(chan string, 2)
			run := func(id string) (leave func()) {
				ctx, cancel := context.WithCancel(t.Context())
				c, err := leaderelection.Config{
					Decider: pg.Opened(t, address), LeaderID: id, TermLength: 2 * time.Second,
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
			leave()
			<-elected
		})
	}
}
