package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// One name leads two candidates to two tables: both say which, a handle stays with its own,
// and the examination warns.
func TestPlace(t *testing.T) {
	server := stores.Postgres(t, "fsync=on")
	p := pool(t, server.Addr)
	exec(t, p, `CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app; CREATE SCHEMA AUTHORIZATION app; CREATE ROLE other LOGIN; GRANT CREATE ON SCHEMA public TO other`, pgx.QueryExecModeSimpleProtocol)
	as := func(user string) *postgres.Decider {
		return opened(t, "postgres://"+user+"@"+server.Addr+"/postgres?sslmode=disable&election=e&create=true&pool_max_conns=1")
	}
	app, other := as("app"), as("other")
	if s := app.String(); !strings.Contains(s, server.Addr) || !strings.Contains(s, `table "leaderelection", election "e"`) {
		t.Errorf("before anybody is asked: %s", s)
	}
	feedtest.Write(t, app, 1, nil)
	feedtest.Write(t, other, 1, nil)
	want := "postgres " + server.Addr + `, database "postgres", table "app"."leaderelection", election "e"`
	if s := app.String(); s != want {
		t.Errorf("%s, want %s", s, want)
	}
	if s := other.String(); s != strings.Replace(want, `"app"`, `"public"`, 1) {
		t.Errorf("%s", s)
	}
	feedtest.Permanent(t, feedtest.WriteError(t, app, 2, foreign{}), want)
	feedtest.Examines(t, other, `"public"."leaderelection"`, "schemas app", "table=public.leaderelection")
	named := postgres.NewDecider(p, "public.leaderelection", "e", nil)
	feedtest.Examines(t, named)

	// Somebody leaves another search_path in a connection of the pool.
	shared := pool(t, server.Addr, "pool_max_conns=1")
	d := postgres.NewDecider(shared, "leaderelection", "e", nil)
	token := feedtest.Read(t, d).Token
	exec(t, shared, "SET search_path = app")
	feedtest.Write(t, d, 2, token)
	for at, number := range map[*postgres.Decider]uint64{app: 1, named: 2} {
		feedtest.Reads(t, at, number)
	}
}

// A blank in an address reaches the server as one.
func TestBlanks(t *testing.T) {
	server := stores.Postgres(t)
	p := pool(t, server.Addr)
	exec(t, p, `CREATE ROLE "two words+" LOGIN; GRANT ALL ON SCHEMA public TO "two words+"`, pgx.QueryExecModeSimpleProtocol)
	d := opened(t, "postgres://"+server.Addr+"/postgres?sslmode=disable&user=two%20words%2B&application_name=a%20b%2Bc&options=-c%20work_mem%3D1MB&election=two%20words&create=true")
	feedtest.Write(t, d, 1, nil)
	var n int
	err := p.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM leaderelection WHERE election = 'two words') * count(*) FROM pg_stat_activity WHERE application_name = 'a b+c' AND usename = 'two words+'").Scan(&n)
	if err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

// A candidate that gets no connection says so, and blames no server.
func TestBusyPool(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr, "pool_max_conns=2")
	d := postgres.NewDecider(p, "leaderelection", "e", create)
	feedtest.Write(t, d, 1, nil)
	for range p.Config().MaxConns {
		c, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
	}
	for _, patience := range []time.Duration{50 * time.Millisecond, time.Minute} { // not by the ctx alone
		_, reading := d.ReadCurrent(within(t, patience))
		feedtest.Passing(t, reading, "waited for a connection", "all 2 are in use", "a pool of its own")
	}
	_, writing := d.WriteEntry(within(t, 50*time.Millisecond), feedtest.State(2, nil))
	feedtest.Passing(t, writing, "waited for a connection")
}

// What synchronous_standby_names means.
func TestQuorum(t *testing.T) {
	for names, want := range map[string][2]int{
		"a": {1, 1}, "a, b": {1, 2}, "2 (a, b)": {2, 2}, "FIRST 2 (a,b,c)": {2, 3}, "any 1 ( a , b )": {1, 2}, `ANY 2 ("x, (y)", b)`: {2, 2},
		"*": {1, 4}, "FIRST 1 (*)": {1, 4}, `"*"`: {1, 1}, "ANY 5 (*)": {5, 5},
	} {
		if must, of := postgres.Quorum(names, 4); must != want[0] || of != want[1] {
			t.Errorf("%s: %d of %d, want %v", names, must, of, want)
		}
	}
}
