package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// On a way on which each answer takes 2 ms, so that what counts is how often a
// hand-over goes to and fro. Without that it is the machine: to end a session, as the
// one that leaves does with its feed's, costs PostgreSQL more than to write.
func TestHandover(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	proxy := stores.NewRelay(t, stores.Postgres(t).Addr)
	proxy.Delay(2 * time.Millisecond)
	feedtest.Handover(t, elections(proxy.Addr))
}

// A statement is a request, be it LISTEN or whatever.
func TestIdle(t *testing.T) {
	stores.Nightly(t, "it counts requests for ten terms")
	t.Parallel()
	server := stores.Postgres(t, "shared_preload_libraries=pg_stat_statements")
	p := pool(t, server.Addr)
	exec(t, p, "CREATE EXTENSION pg_stat_statements")
	feedtest.Idle(t, elections(server.Addr), func() (n int) {
		const query = "SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'"
		if err := p.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	})
}

// killer ends all connections of a victim's.
func killer(t *testing.T, p *pgxpool.Pool, victim string) func() {
	return func() {
		exec(t, p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", victim)
	}
}

// The observer's connection is cut, its connections killed by the server, the server
// killed and started again.
func TestNews(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	t.Parallel()
	server := stores.Postgres(t)
	proxy := stores.NewRelay(t, server.Addr)
	kill := killer(t, pool(t, server.Addr), "victim")
	for name, c := range map[string]struct {
		victim  string
		trouble feedtest.Trouble
	}{
		"cut":           {proxy.Addr, feedtest.Trouble{Break: proxy.Refuse, Heal: proxy.Heal}},
		"feed killed":   {server.Addr, feedtest.Trouble{Break: kill, Heal: kill}},
		"server killed": {server.Addr, feedtest.Trouble{Break: server.Stop, Heal: func() { server.Start(t) }}},
	} {
		t.Run(name, func(t *testing.T) {
			election := feedtest.Unique()
			writer := postgres.NewDecider(pool(t, server.Addr), "leaderelection", election, create)
			feedtest.News(t, writer, postgres.NewDecider(pool(t, c.victim, "application_name=victim"), "leaderelection", election, create), c.trouble)
		})
	}
}

// The server is killed in the middle of a leadership, and started again.
func TestOutage(t *testing.T) {
	stores.Nightly(t, "it breaks the store and waits")
	t.Parallel()
	server := stores.Postgres(t)
	feedtest.Outage(t, elections(server.Addr), feedtest.Trouble{Break: server.Stop, Heal: func() { server.Start(t) }})
}

// A feed through which nothing comes any more ends, though its connection stands;
// one that is merely quiet does not.
func TestSilence(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	t.Parallel()
	const silence = time.Second
	server := stores.Postgres(t)
	proxy := stores.NewRelay(t, server.Addr)
	d := postgres.NewDecider(pool(t, proxy.Addr), "leaderelection", "e", &postgres.Options{CreateTable: true, FeedSilence: silence})
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	select {
	case n := <-feed:
		t.Fatalf("while nothing happens the feed yields %+v", n)
	case <-time.After(3 * silence):
	}
	token := feedtest.Write(t, postgres.NewDecider(pool(t, server.Addr), "leaderelection", "e", nil), 1, nil)
	if n := feedtest.Next(t, feed); n.Err != nil || n.ElectionNumber != 1 || n.Token != token {
		t.Fatalf("%+v", n)
	}
	hung := time.Now()
	proxy.Cut()
	feedtest.Passing(t, feedtest.Next(t, feed).Err, `"e"`, "the server does not answer")
	if took := time.Since(hung); took > 10*silence {
		t.Errorf("noticed after %v", took)
	}
	proxy.Heal()
}

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
	d := postgres.NewDecider(pool(t, stores.Postgres(t).Addr), "leaderelection", "e", create)
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
	d := postgres.NewDecider(p, "leaderelection", "e", create)
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
	d := postgres.NewDecider(p, "leaderelection", "e", create)
	feed := feedtest.Follow(t, d)
	token := feedtest.Write(t, d, 1, feedtest.Next(t, feed).Token)
	feedtest.Next(t, feed)
	var known string
	if err := p.QueryRow(t.Context(), `SELECT 'leaderelection_' || left(encode(sha256('public'::bytea || '\x00' || 'leaderelection'::bytea || '\x00' || 'e'::bytea), 'hex'), 32)`).Scan(&known); err != nil {
		t.Fatal(err)
	}
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
