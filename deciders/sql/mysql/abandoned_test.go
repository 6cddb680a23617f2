package mysql_test

import (
	"database/sql"
	"testing"

	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/deciders/sql/mysql"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// A call that is given up leaves no connection in the pool that has died without a word, even if
// there were several.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, stores.MariaDB(t).Addr)
	d := opened(t, "mysql://root@"+relay.Addr+"/test?election=e&create=true")
	feedtest.Read(t, d) // makes the table
	feedtest.Abandons(t, d, relay.Swallow)
}

// After a fail-over behind an address that stays, the old primary answers on the connections that
// there are, and takes no writes. Both the pool that NewDB makes and a caller's leave it.
func TestReadOnlyConnectionLeavesThePool(t *testing.T) {
	old, primary := stores.MariaDB(t), stores.MariaDB(t)
	relay := stores.NewRelay(t, old.Addr)
	for _, db := range []*sql.DB{pool(t, config(old.Addr)), pool(t, config(primary.Addr))} {
		exec(t, db, "CREATE USER app IDENTIFIED BY ''") // root may write to what is read-only
		exec(t, db, "GRANT SELECT, INSERT, UPDATE, CREATE ON test.* TO app")
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
			d := lesql.NewDecider(db, mysql.Dialect(), "leaderelection", name, create)
			admin := pool(t, config(old.Addr))
			relay.Lead(old.Addr)
			at := feedtest.Write(t, d, 1, nil)
			feedtest.Read(t, lesql.NewDecider(pool(t, config(primary.Addr)), mysql.Dialect(), "leaderelection", name, create)) // makes the table
			exec(t, admin, "SET GLOBAL read_only = 1")
			defer exec(t, admin, "SET GLOBAL read_only = 0")
			relay.Lead(primary.Addr)
			if _, err := d.WriteEntry(t.Context(), feedtest.State(2, at)); err == nil {
				t.Fatal("the old primary has taken a write")
			}
			feedtest.Reads(t, d, 0)
			feedtest.Write(t, d, 3, nil)
		})
	}
}
