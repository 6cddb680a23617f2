package mysql_test

import (
	"strings"
	"testing"
	"time"

	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/deciders/sql/mysql"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// However long writes hang, at a row that somebody has locked or for a replica that is gone,
// and however many calls are given up meanwhile, few sessions of a candidate run at the server.
// As many calls as a term of 15 s has in ten minutes.
func TestSessionsAreBounded(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	const calls, most = 160, 3
	p := newPair(t, "AFTER_COMMIT")
	sessions := func() (n int) {
		t.Helper()
		if err := p.db.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%leaderelection%' AND info NOT LIKE '%processlist%'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	c := config(p.primary.Addr)
	c.Params = map[string]string{"innodb_lock_wait_timeout": "50"} // the server's default
	d := lesql.NewDecider(pool(t, c), mysql.Dialect(), "leaderelection", "e", create)
	token := feedtest.Write(t, d, 1, nil)
	hang := func(t *testing.T, waits string) {
		t.Helper()
		said := false
		for i := range calls {
			var err error
			if i%2 == 0 {
				_, err = d.WriteEntry(within(t, 20*time.Millisecond), feedtest.State(2, token))
			} else {
				_, err = d.ReadCurrent(within(t, 20*time.Millisecond))
			}
			said = said || err != nil && strings.Contains(err.Error(), "still run at the server") && strings.Contains(err.Error(), waits)
			if n := sessions(); n > most {
				t.Fatalf("after %d calls %d sessions are waiting", i+1, n)
			}
		}
		if _, err := d.WriteEntry(within(t, 20*time.Second), feedtest.State(2, token)); err != nil && strings.Contains(err.Error(), waits) {
			said = true
		}
		if !said {
			t.Errorf("nothing has said %q", waits)
		}
	}
	t.Run("a locked row", func(t *testing.T) {
		tx, err := p.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.Exec("SELECT * FROM leaderelection FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		hang(t, "Updating")
	})
	t.Run("no replica", func(t *testing.T) {
		feedtest.Eventually(t, "it writes again", func() bool {
			e, err := d.ReadCurrent(within(t, 5*time.Second))
			if err != nil {
				return false
			}
			next, err := d.WriteEntry(within(t, 5*time.Second), feedtest.State(uint64(e.ElectionNumber)+1, e.Token))
			if err == nil {
				token = next
			}
			return err == nil
		})
		p.between.Cut()
		defer p.between.Heal()
		hang(t, "semi-sync")
	})
}

// What keeps a session from writing is said in words that one can act on, and a lock is not
// waited for until the campaign has given up.
func TestSessionsThatMayNotWrite(t *testing.T) {
	server := stores.MariaDB(t, "--autocommit=0")
	db := pool(t, config(server.Addr))
	exec(t, db, "SET GLOBAL tx_read_only = 1")
	address := "mysql://root@" + server.Addr + "/test?create=true&election=e"
	feedtest.Passing(t, feedtest.WriteError(t, opened(t, address), 1, nil), "this session is read-only", "init_connect")
	exec(t, db, "SET GLOBAL tx_read_only = 0")
	d := opened(t, address)
	token := feedtest.Write(t, d, 1, nil)
	tx, err := db.BeginTx(t.Context(), nil)
	if err == nil {
		_, err = tx.Exec("SELECT * FROM leaderelection FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	_, err = d.WriteEntry(within(t, 30*time.Second), feedtest.State(2, token))
	feedtest.Passing(t, err, "somebody holds the row's lock")
	if s := d.String(); !strings.HasPrefix(s, "mysql ") || !strings.Contains(s, `, database "test", table `+"`leaderelection`"+`, election "e"`) {
		t.Error(s)
	}
}
