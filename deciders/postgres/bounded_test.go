package postgres_test

import (
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// However long writes hang at a row that somebody has locked, and however many calls are given up
// meanwhile, the server ends most of a candidate's sessions. As many calls as a term of 15 s has in ten
// minutes.
func TestSessionsAreBounded(t *testing.T) {
	const calls, most = 160, 40 // whose cancellation is on its way: the client asks for it over another connection
	server := stores.Postgres(t)
	d := opened(t, "postgres://postgres@"+server.Addr+"/postgres?sslmode=disable&create=true&election=e&application_name=candidate")
	token := feedtest.Write(t, d, 1, nil)
	other := pool(t, server.Addr)
	tx, err := other.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "SELECT * FROM leaderelection FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	failed := 0
	for i := range calls {
		if _, err := d.WriteEntry(within(t, 20*time.Millisecond), feedtest.State(2, token)); err != nil {
			failed++
		}
		var n int
		if err := other.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'candidate'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > most {
			t.Fatalf("after %d calls %d sessions are open", i+1, n)
		}
	}
	if failed < calls {
		t.Errorf("%d of %d writes failed: do they hang?", failed, calls)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := feedtest.Read(t, d)
	feedtest.Write(t, d, uint64(e.ElectionNumber)+1, e.Token)
}
