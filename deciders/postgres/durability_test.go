package postgres_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
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
			t.Errorf("the crash took back the record of election %d: %+v", number, e)
		}
		p = again
	}
	if forgotten == 0 {
		t.Error("no crash has forgotten anything: nothing was shown")
	}
}
