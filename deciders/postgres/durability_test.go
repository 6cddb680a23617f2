package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// With synchronous_commit=off a crash forgets what others have written a moment
// before, and not what a Decider has.
func TestAsynchronousCommit(t *testing.T) {
	server := stores.Postgres(t, "synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=0", "autovacuum=off")
	p := pool(t, server.Addr)
	exec(t, p, "CREATE TABLE other (n int)")
	d := postgres.NewDecider(p, "leaderelection", "e", create)
	token := feedtest.Write(t, d, 1, nil)
	forgotten := 0
	for number := uint64(2); number < 5; number++ {
		token = feedtest.Write(t, d, number, token)
		exec(t, p, "INSERT INTO other VALUES ($1)", number)
		server.Stop() // as a crash does
		server.Start(t)
		var kept int
		again := pool(t, server.Addr)
		if err := again.QueryRow(t.Context(), "SELECT count(*) FROM other WHERE n = $1", number).Scan(&kept); err != nil {
			t.Fatal(err)
		}
		if kept == 0 {
			forgotten++
		}
		d = postgres.NewDecider(again, "leaderelection", "e", nil)
		if e := feedtest.Read(t, d); uint64(e.ElectionNumber) != number || e.Token != token {
			t.Errorf("the crash took back the record of leadership %d: %+v", number, e)
		}
		p = again
	}
	if forgotten == 0 {
		t.Error("no crash has forgotten anything: nothing was shown")
	}
}

// Each setting by which a server forgets what it has confirmed is warned of, and a
// server without one is not.
func TestDurability(t *testing.T) {
	stores.Nightly(t, "it starts a standby")
	server := stores.Postgres(t, "fsync=on")
	p := pool(t, server.Addr)
	warns := func(p *pgxpool.Pool, words ...string) {
		t.Helper()
		feedtest.Examines(t, postgres.NewDecider(p, "leaderelection", "e", create), words...)
	}
	set := func(setting, value string) {
		t.Helper()
		exec(t, p, "ALTER SYSTEM SET "+setting+" = '"+value+"'")
		exec(t, p, "SELECT pg_reload_conf()")
		feedtest.Eventually(t, setting+" is "+value, func() (ok bool) {
			err := p.QueryRow(t.Context(), "SELECT current_setting($1) = $2", setting, value).Scan(&ok)
			return err == nil && ok
		})
	}
	warns(p)
	set("full_page_writes", "off")
	warns(p, "full_page_writes is off", "full_page_writes = on")
	set("full_page_writes", "on")

	standby := stores.PostgresStandby(t, server, "fsync=on")
	feedtest.Eventually(t, "the standby receives", func() (ok bool) { // it serves before it does
		err := p.QueryRow(t.Context(), "SELECT count(*) = 1 FROM pg_stat_replication").Scan(&ok)
		return err == nil && ok
	})
	warns(p, "synchronous_standby_names is", "1 receivers", "FIRST 2 (a, b)")
	warns(pool(t, standby.Addr), "pg_is_in_recovery", "name the primary")
	set("synchronous_standby_names", "*") // the only one
	warns(p)
	set("synchronous_standby_names", "ANY 1 (walreceiver, b)")
	warns(p, "when 1 of 2 standbys have it", "the most advanced of at least 2")
	set("synchronous_standby_names", "FIRST 2 (walreceiver, b)")
	warns(p)
	// Who names several hosts means the primary.
	set("synchronous_standby_names", "")
	both := opened(t, "postgres://postgres@"+standby.Addr+","+server.Addr+"/postgres?sslmode=disable&election=e")
	feedtest.Write(t, both, 1, nil)
	if s := both.String(); !strings.Contains(s, standby.Addr+","+server.Addr) {
		t.Error(s)
	}

	unsafe := pool(t, stores.Postgres(t, "fsync=off").Addr)
	warns(unsafe, "fsync is off", "fsync = on")
	exec(t, unsafe, "ALTER TABLE leaderelection SET UNLOGGED")
	_, err := postgres.NewDecider(unsafe, "leaderelection", "e", nil).Durability(t.Context())
	feedtest.Permanent(t, err, "UNLOGGED", "SET LOGGED")
}
