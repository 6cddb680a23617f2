package mysql_test

import (
	"context"
	"database/sql"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/deciders/sql/mysql"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_ = driver.SetLogger(log.New(io.Discard, "", 0)) // it tells of connections that are cut here
	proctest.Main(mysql.Open)
	goleak.VerifyTestMain(m)
}

// config is that of a connection to a server that the tests have started.
func config(addr string) *driver.Config {
	c := driver.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "tcp", addr, "test"
	return c
}

// pool returns a pool of its own, closed at the end of the test.
func pool(t testing.TB, c *driver.Config) *sql.DB {
	t.Helper()
	db, err := mysql.NewDB(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// my is MariaDB, for the tests that all stores have.
var my = storetest.Store[*lesql.Decider]{
	Open:    mysql.Open,
	Start:   func(t testing.TB) (string, storetest.Server) { return stores.MariaDB(t).Addr, nil },
	Address: "mysql://root@$addr/test?create=true&election=$election",
}

// decider returns an election in the usual table, and maker one that makes the table if it is missing.
func decider(db *sql.DB, election string) *lesql.Decider {
	return lesql.NewDecider(db, mysql.Dialect(), "leaderelection", election, nil)
}

func maker(db *sql.DB, election string) *lesql.Decider {
	return lesql.NewDecider(db, mysql.Dialect(), "leaderelection", election, create)
}

var create = &lesql.Options{CreateTable: true}

func TestConformance(t *testing.T) {
	addr := stores.MariaDB(t).Addr
	for name, adjust := range map[string]func(*driver.Config){
		"default": func(*driver.Config) {},
		"found rows, uncommitted reads": func(c *driver.Config) {
			c.ClientFoundRows, c.Params = true, map[string]string{"tx_isolation": "'READ-UNCOMMITTED'"}
		},
		"serializable, latin1, Tokyo's time": func(c *driver.Config) {
			c.Params = map[string]string{"tx_isolation": "'SERIALIZABLE'", "time_zone": "'+09:00'", "sql_mode": "'NO_BACKSLASH_ESCAPES'"}
			c.Collation = "latin1_swedish_ci"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
				election := feedtest.Unique()
				return func() leaderelection.RaceDecider {
					c := config(addr)
					adjust(c)
					return maker(pool(t, c), election)
				}
			}, nil)
		})
	}
}

func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	my.Processes(t)
}
func TestFaults(t *testing.T)              { my.Faults(t) }
func TestAbandonedConnection(t *testing.T) { my.Abandons(t, "") }

// After a fail-over behind an address that stays, the old primary answers on the connections that
// there are, and takes no writes. Both the pool that NewDB makes and a caller's leave it.
func TestReadOnlyConnectionLeavesThePool(t *testing.T) {
	old, primary := stores.MariaDB(t), stores.MariaDB(t)
	relay := stores.NewRelay(t, old.Addr)
	for _, db := range []*sql.DB{pool(t, config(old.Addr)), pool(t, config(primary.Addr))} {
		storetest.Exec(t, db, "CREATE USER app IDENTIFIED BY ''") // root may write to what is read-only
		storetest.Exec(t, db, "GRANT SELECT, INSERT, UPDATE, CREATE ON test.* TO app")
	}
	c := config(relay.Addr)
	c.User = "app"
	callers, err := sql.Open("mysql", c.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = callers.Close() })
	for name, db := range map[string]*sql.DB{"NewDB": pool(t, c), "caller": callers} {
		t.Run(name, func(t *testing.T) {
			d := maker(db, name)
			admin := pool(t, config(old.Addr))
			relay.Lead(old.Addr)
			at := feedtest.Write(t, d, 1, nil)
			feedtest.Read(t, maker(pool(t, config(primary.Addr)), name)) // makes the table
			storetest.Exec(t, admin, "SET GLOBAL read_only = 1")
			defer storetest.Exec(t, admin, "SET GLOBAL read_only = 0")
			relay.Lead(primary.Addr)
			if _, err := d.WriteEntry(t.Context(), feedtest.State(2, at)); err == nil {
				t.Fatal("the old primary has taken a write")
			}
			feedtest.Reads(t, d, 0)
			feedtest.Write(t, d, 3, nil)
		})
	}
}

// Of all processes that run this, one at a time does the job.
func Example() {
	config, err := driver.ParseDSN(os.Getenv("MYSQL_DSN")) // user:password@tcp(db:3306)/app
	if err != nil {
		log.Fatal(err)
	}
	db, err := mysql.NewDB(config)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	decider := lesql.NewDecider(db, mysql.Dialect(), "leaderelection", "nightly", &lesql.Options{CreateTable: true})
	log.Print(leaderelection.Config{Decider: decider, LeaderID: "web-1"}.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}

// pair is a primary whose writes wait for a replica, which can be cut off.
type pair struct {
	primary, replica *stores.Process
	between          *stores.Relay
	db               *sql.DB // of the primary
}

func newPair(t *testing.T, waitPoint string) *pair {
	t.Helper()
	p := &pair{
		primary: stores.MariaDB(t, "--log-bin=bin", "--server-id=1", "--rpl-semi-sync-master-wait-point="+waitPoint, "--rpl-semi-sync-master-timeout=4294967295",
			"--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"),
		replica: stores.MariaDB(t, "--server-id=2", "--rpl-semi-sync-slave-enabled=1", "--slave-net-timeout=2"),
	}
	p.between = stores.NewRelay(t, p.primary.Addr)
	_, port, err := net.SplitHostPort(p.between.Addr)
	if err != nil {
		t.Fatal(err)
	}
	p.db = pool(t, config(p.primary.Addr))
	replica := pool(t, config(p.replica.Addr))
	storetest.Exec(t, replica, "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = "+port+", MASTER_USER = 'root', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_HEARTBEAT_PERIOD = 0.5")
	storetest.Exec(t, replica, "START SLAVE")
	p.inSync(t)
	storetest.Exec(t, p.db, "SET GLOBAL rpl_semi_sync_master_enabled = 1")
	return p
}

// inSync waits until the replica answers.
func (p *pair) inSync(t *testing.T) {
	t.Helper()
	feedtest.Eventually(t, "the replica is there", func() bool { return status(t, p.db, "Rpl_semi_sync_master_clients") == "1" })
}

func status(t testing.TB, db *sql.DB, name string) (value string) {
	t.Helper()
	if err := db.QueryRow("SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&name, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// A write whose answer was not awaited, while the replica lacks it, counts for nothing
// until the replica has it, even if the primary shows it to all before.
func TestUnreplicatedWrite(t *testing.T) {
	stores.Nightly(t, "it waits for the server or the client to give up")
	for _, point := range []string{"AFTER_COMMIT", "AFTER_SYNC"} {
		t.Run(point, func(t *testing.T) {
			p := newPair(t, point)
			d := maker(pool(t, config(p.primary.Addr)), "e")
			token := feedtest.Write(t, d, 1, nil)
			p.between.Refuse()
			_, err := d.WriteEntry(storetest.Within(t, time.Second), feedtest.State(2, token))
			feedtest.Passing(t, err, "deadline exceeded", `"e"`)
			other := decider(p.db, "e")
			if point == "AFTER_COMMIT" {
				feedtest.Eventually(t, "the write is seen by others", func() bool { return feedtest.Read(t, other).ElectionNumber == 2 })
			}
			for range 2 {
				if e, err := d.ReadCurrent(storetest.Within(t, time.Second)); err == nil && e.ElectionNumber != 1 {
					t.Errorf("the replica lacks it, and it is read back: %+v", e)
				}
			}
			p.between.Heal()
			p.inSync(t)
			feedtest.Eventually(t, "the write counts", func() bool {
				e, err := d.ReadCurrent(storetest.Within(t, 5*time.Second))
				return err == nil && e.ElectionNumber == 2
			})
			feedtest.Write(t, d, 3, feedtest.Read(t, d).Token)
			replica := decider(pool(t, config(p.replica.Addr)), "e")
			feedtest.Eventually(t, "the replica has the rows as they are", func() bool {
				e, err := replica.ReadCurrent(t.Context())
				return err == nil && e.ElectionNumber == 3
			})
		})
	}
}

// Primary and leader are cut off from the replica, and then the primary dies: the
// replica's new leader does not lead before the old one's view has ended.
func TestFailOverToReplica(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	const term, skew = 4 * time.Second, 200 * time.Millisecond
	p := newPair(t, "AFTER_COMMIT")
	start := func(id, addr string) (*leaderelection.Campaign, <-chan struct{}) {
		return feedtest.Campaign(t, my.Opened(t, my.At(addr, "e")), id, term, skew)
	}
	old, elected := start("old", p.primary.Addr)
	<-elected
	replica := pool(t, config(p.replica.Addr))
	copied := decider(replica, "e")
	feedtest.Eventually(t, "the replica has the record", func() bool {
		e, err := copied.ReadCurrent(t.Context())
		return err == nil && e.LeaderID == "old"
	})
	storetest.Exec(t, replica, "SET GLOBAL read_only = 1")
	p.between.Refuse()
	cut := time.Now()
	storetest.Exec(t, replica, "STOP SLAVE")
	storetest.Exec(t, replica, "RESET SLAVE ALL")
	storetest.Exec(t, replica, "SET GLOBAL read_only = 0")
	_, elected = start("new", p.replica.Addr)
	<-elected
	if left := time.Until(old.View().Get()); old.View().ValueInFuture() {
		t.Errorf("the new leader leads, and the old one for %v more", left)
	}
	t.Logf("a new leader %v after the cut", time.Since(cut).Round(time.Millisecond))
	p.primary.Stop()
}

// Each setting by which a server forgets what it has confirmed is warned of, and a
// server without one is not.
func TestDurability(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	p := newPair(t, "AFTER_SYNC")
	warns := func(words ...string) {
		t.Helper()
		feedtest.Examines(t, maker(p.db, "e"), words...)
	}
	warns()
	set := func(setting, bad, good string, words ...string) {
		t.Helper()
		storetest.Exec(t, p.db, "SET GLOBAL "+setting+" = "+bad)
		warns(words...)
		storetest.Exec(t, p.db, "SET GLOBAL "+setting+" = "+good)
	}
	set("innodb_flush_log_at_trx_commit", "2", "1", "innodb_flush_log_at_trx_commit is 2", "= 1")
	set("sync_binlog", "0", "1", "sync_binlog is 0", "= 1")
	set("read_only", "1", "0", "read_only is on", "primary")
	set("rpl_semi_sync_master_timeout", "10000", "4294967295", "waits for only 10000 ms", "4294967295")
	set("rpl_semi_sync_master_enabled", "0", "1", "to 1 replicas is asynchronous")
	feedtest.Eventually(t, "semi-synchronous again", func() bool { return status(t, p.db, "Rpl_semi_sync_master_status") == "ON" })
	warns()
	c := config(p.primary.Addr)
	c.Params = map[string]string{"tx_isolation": "'READ-UNCOMMITTED'"}
	feedtest.Examines(t, decider(pool(t, c), "e"), "READ UNCOMMITTED")
	storetest.Exec(t, p.db, "SET GLOBAL rpl_semi_sync_master_timeout = 1")
	p.between.Refuse()
	storetest.Exec(t, p.db, "INSERT INTO leaderelection VALUES ('other', 'v', 1, '')")
	feedtest.Eventually(t, "it has given up waiting", func() bool { return status(t, p.db, "Rpl_semi_sync_master_status") == "OFF" })
	warns("has given up waiting")
}

// However long writes hang, at a row that somebody has locked or for a replica that is gone,
// and however many calls are given up meanwhile, few sessions of a candidate run at the server.
// As many calls as a term of 15 s has in ten minutes.
func TestSessionsAreBounded(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	const calls, most = 160, 3
	p := newPair(t, "AFTER_COMMIT")
	sessions := func() int {
		return storetest.Value[int](t, p.db, "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%leaderelection%' AND info NOT LIKE '%processlist%'")
	}
	c := config(p.primary.Addr)
	c.Params = map[string]string{"innodb_lock_wait_timeout": "50"} // the server's default
	d := maker(pool(t, c), "e")
	token := feedtest.Write(t, d, 1, nil)
	hang := func(t *testing.T, waits string) {
		t.Helper()
		said := false
		for i := range calls {
			var err error
			if i%2 == 0 {
				_, err = d.WriteEntry(storetest.Within(t, 20*time.Millisecond), feedtest.State(2, token))
			} else {
				_, err = d.ReadCurrent(storetest.Within(t, 20*time.Millisecond))
			}
			said = said || err != nil && strings.Contains(err.Error(), "still run at the server") && strings.Contains(err.Error(), waits)
			if n := sessions(); n > most {
				t.Fatalf("after %d calls %d sessions are waiting", i+1, n)
			}
		}
		if _, err := d.WriteEntry(storetest.Within(t, 20*time.Second), feedtest.State(2, token)); err != nil && strings.Contains(err.Error(), waits) {
			said = true
		}
		if !said {
			t.Errorf("nothing has said %q", waits)
		}
	}
	t.Run("a locked row", func(t *testing.T) {
		defer locks(t, p.db).Rollback()
		hang(t, "Updating")
	})
	t.Run("no replica", func(t *testing.T) {
		feedtest.Eventually(t, "it writes again", func() bool {
			e, err := d.ReadCurrent(storetest.Within(t, 5*time.Second))
			if err != nil {
				return false
			}
			next, err := d.WriteEntry(storetest.Within(t, 5*time.Second), feedtest.State(uint64(e.ElectionNumber)+1, e.Token))
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
	storetest.Exec(t, db, "SET GLOBAL tx_read_only = 1")
	address := my.At(server.Addr, "e")
	feedtest.Passing(t, feedtest.WriteError(t, my.Opened(t, address), 1, nil), "this session is read-only", "init_connect")
	storetest.Exec(t, db, "SET GLOBAL tx_read_only = 0")
	d := my.Opened(t, address)
	token := feedtest.Write(t, d, 1, nil)
	defer locks(t, db).Rollback()
	_, err := d.WriteEntry(storetest.Within(t, 30*time.Second), feedtest.State(2, token))
	feedtest.Passing(t, err, "somebody holds the row's lock")
	if s := d.String(); !strings.HasPrefix(s, "mysql ") || !strings.Contains(s, `, database "test", table `+"`leaderelection`"+`, election "e"`) {
		t.Error(s)
	}
}

// locks holds the locks of all rows, until it is rolled back.
func locks(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err == nil {
		_, err = tx.Exec("SELECT * FROM leaderelection FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}
