package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

// What is in the table and no record of ours is reported, and left alone.
func TestForeignRecordIsLeftAlone(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	exec(t, p, postgres.Schema("leaderelection"))
	contents := feedtest.NoRecords()
	maps.DeleteFunc(contents, func(_, content string) bool { return !json.Valid([]byte(content)) })
	maps.Copy(contents, map[string]string{"null": "null", "a missing field": `{"leaderelection":1,"leader_id":"a"}`, "given twice": `{"leaderelection":1,"leader_id":"a","leader_id":"b"}`})
	storetest.LeavesAlone(t, contents,
		func(election string) leaderelection.RaceDecider {
			return postgres.NewDecider(p, "leaderelection", election, nil)
		},
		func(election, content string) {
			exec(t, p, "INSERT INTO leaderelection VALUES ($1, 'v', now(), $2, 'c')", election, content)
		},
		func(election string) string {
			return value[string](t, p, "SELECT record::text FROM leaderelection WHERE election = $1", election)
		})
}

func TestTablesThatWillNotDo(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	const columns = " (election text PRIMARY KEY, version text, written timestamptz, record json, channel text)"
	for name, c := range map[string]struct {
		sql   string
		words []string
	}{
		"missing":       {"SELECT", []string{"there is no such table", "CREATE TABLE", "CreateTable"}},
		"unlogged":      {"CREATE UNLOGGED TABLE t" + columns, []string{"UNLOGGED", "SET LOGGED"}},
		"a view":        {"CREATE VIEW t AS SELECT 'e' AS election", []string{"not an ordinary table"}},
		"partitioned":   {"CREATE TABLE t" + columns + " PARTITION BY HASH (election)", []string{"not an ordinary table"}},
		"no key":        {"CREATE TABLE t (election text, version text, written timestamptz, record json, channel text)", []string{"unique index", "CREATE TABLE"}},
		"another key":   {"CREATE TABLE t (id int PRIMARY KEY, election text)", []string{"unique index", "CREATE TABLE"}},
		"other columns": {"CREATE TABLE t (election text PRIMARY KEY, leader text)", []string{"version", "CREATE TABLE"}},
	} {
		t.Run(name, func(t *testing.T) {
			exec(t, p, "DROP SCHEMA IF EXISTS s CASCADE; CREATE SCHEMA s;"+strings.NewReplacer("TABLE t", "TABLE s.t", "VIEW t", "VIEW s.t").Replace(c.sql), pgx.QueryExecModeSimpleProtocol)
			feedtest.Refuses(t, postgres.NewDecider(p, "s.t", "e", nil), append(c.words, `"s"."t"`, `"e"`)...)
		})
	}
	exec(t, p, "DROP SCHEMA s CASCADE; CREATE SCHEMA s; CREATE TABLE s.t (election text PRIMARY KEY, version text, written timestamptz, record int, channel text)", pgx.QueryExecModeSimpleProtocol)
	feedtest.Permanent(t, feedtest.WriteError(t, postgres.NewDecider(p, "s.t", "e", nil), 1, nil), "of type integer", "CREATE TABLE")
}

func TestBadInputs(t *testing.T) {
	p := pool(t, "127.0.0.1:1") // nobody is asked
	for _, names := range [][2]string{
		{"", "e"}, {"t", ""}, {"a.b.c", "e"}, {".t", "e"}, {"t.", "e"}, {"t\x00", "e"}, {"t", "e\x00"},
		{strings.Repeat("t", 64), "e"}, {"t", strings.Repeat("e", 1001)},
	} {
		feedtest.Refuses(t, postgres.NewDecider(p, names[0], names[1], nil), "name must")
	}
	// A bare number counts nanoseconds: nobody means so few.
	feedtest.Refuses(t, postgres.NewDecider(p, "leaderelection", "one", &postgres.Options{FeedSilence: 10}), "nanoseconds")
	for _, db := range []postgres.DB{nil, (*pgxpool.Pool)(nil)} {
		feedtest.Refuses(t, decider(db), "the pool is nil")
	}
}

// Names are taken as they are, whatever is in them.
func TestOddNames(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	exec(t, p, `CREATE SCHEMA "My Schema"`)
	for _, table := range []string{`Elections`, `select`, `a"b`, `My Schema.t; DROP TABLE x`, strings.Repeat("t", 63)} {
		for _, election := range []string{"e", "it's", `"\`, strings.Repeat("e", 1000), "$1", "élection"} {
			d := postgres.NewDecider(p, table, election, create)
			feed := feedtest.Follow(t, d)
			feedtest.Write(t, d, 1, feedtest.Next(t, feed).Token)
			feedtest.Number(t, feed, 1)
		}
	}
}

func TestForeignTokenAndClosedPool(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	d := decider(p)
	_, err := d.WriteEntry(t.Context(), feedtest.State(1, storetest.Foreign{}))
	feedtest.Permanent(t, err, "another kind of store")
	token := feedtest.Write(t, d, 1, nil)
	if err := d.Close(); err != nil { // the pool is the caller's
		t.Fatal(err)
	}
	token = feedtest.Write(t, d, 2, token)
	p.Close()
	feedtest.Permanent(t, feedtest.WriteError(t, d, 3, token), "closed pool", "keep the pool open")
	feedtest.Permanent(t, feedtest.Next(t, feedtest.Follow(t, d)).Err, "closed pool")
}

// The least permissions that the documentation names, and less.
func TestPermissions(t *testing.T) {
	server := stores.Postgres(t)
	p := pool(t, server.Addr)
	exec(t, p, postgres.Schema("leaderelection")+`
		CREATE ROLE candidate LOGIN; CREATE ROLE observer LOGIN; CREATE ROLE nobody LOGIN; CREATE SCHEMA secret;
		GRANT SELECT, INSERT, UPDATE ON leaderelection TO candidate; GRANT SELECT ON leaderelection TO observer`, pgx.QueryExecModeSimpleProtocol)
	as := func(user, more string) *postgres.Decider {
		return pg.Opened(t, fmt.Sprintf("postgres://%s@%s/postgres?sslmode=disable&election=e%s", user, server.Addr, more))
	}
	candidate, observer := as("candidate", ""), as("observer", "")
	feed := feedtest.Follow(t, observer)
	token := feedtest.Next(t, feed).Token
	for number := uint64(1); number <= 2; number++ {
		token = feedtest.Write(t, candidate, number, token)
		if n := feedtest.Next(t, feed); n.Err != nil || uint64(n.ElectionNumber) != number {
			t.Errorf("the observer's feed yields %+v", n)
		}
	}
	feedtest.Permanent(t, feedtest.WriteError(t, observer, 3, feedtest.Read(t, observer).Token), "permission denied", "GRANT SELECT, INSERT, UPDATE")
	feedtest.Refuses(t, as("nobody", ""), "permission denied", "GRANT")
	feedtest.Refuses(t, as("nobody", "&table=secret.t"), "permission denied")
	feedtest.Refuses(t, as("nobody", "&table=t&create=true"), "permission denied", "CREATE on its schema")
}

// What is refused when connecting.
func TestWrongServer(t *testing.T) {
	server := stores.Postgres(t, "max_connections=12", "superuser_reserved_connections=2")
	exec(t, pool(t, server.Addr), "CREATE ROLE app LOGIN")
	feedtest.Refuses(t, pg.Opened(t, "postgres://app@"+server.Addr+"/nowhere?sslmode=disable&election=e"), `"nowhere" does not exist`, "make the database")
	feedtest.Refuses(t, pg.Opened(t, "postgres://nobody@"+server.Addr+"/postgres?sslmode=disable&election=e"), `"nobody" does not exist`, "check user")
	feedtest.Refuses(t, pg.Opened(t, "postgres://app@"+server.Addr+"/postgres?sslmode=require&election=e"), "TLS")
	feedtest.Refuses(t, postgres.NewDecider(pool(t, server.Addr), "nowhere.t", "e", create), "make the schema")

	crowd := pool(t, server.Addr, "pool_max_conns=20")
	for range 10 {
		c, err := crowd.Acquire(t.Context())
		if err != nil {
			break
		}
		defer c.Release()
	}
	for _, err := range feedtest.Errors(t, pg.Opened(t, "postgres://app@"+server.Addr+"/postgres?sslmode=disable&election=e")) {
		feedtest.Passing(t, err, "max_connections")
	}
}

// Of several hosts the one that takes writes is meant, unless the URL says otherwise.
func TestSeveralHosts(t *testing.T) {
	stores.Nightly(t, "it starts a standby")
	primary := stores.Postgres(t)
	standby := stores.PostgresStandby(t, primary)
	both := standby.Addr + "," + primary.Addr
	d := opened(t, both, "")
	feedtest.Write(t, d, 1, nil)
	if s := d.String(); !strings.Contains(s, both) {
		t.Error(s)
	}
	feedtest.Passing(t, feedtest.WriteError(t, opened(t, both, "&target_session_attrs=any"), 2, nil), "connect to the primary")
}

// A standby serves reads, and nothing else until it is promoted. That may pass.
func TestStandby(t *testing.T) {
	stores.Nightly(t, "it starts a standby")
	primary := stores.Postgres(t)
	onPrimary := decider(pool(t, primary.Addr))
	token := feedtest.Write(t, onPrimary, 1, nil)
	standby := stores.PostgresStandby(t, primary)
	p := pool(t, standby.Addr)
	d := postgres.NewDecider(p, "leaderelection", "e", nil)
	if e := feedtest.Read(t, d); e.ElectionNumber != 1 || e.Token != token {
		t.Errorf("on the standby: %+v", e)
	}
	feedtest.Passing(t, feedtest.WriteError(t, d, 2, token), "25006", "connect to the primary")
	feedtest.Passing(t, feedtest.Next(t, feedtest.Follow(t, d)).Err, "connect to the primary")

	primary.Stop()
	exec(t, p, "SELECT pg_promote(true)")
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	token = feedtest.Write(t, d, 2, token)
	if n := feedtest.Next(t, feed); n.Err != nil || n.Token != token {
		t.Errorf("after the promotion the feed yields %+v", n)
	}
}

// A database in another encoding takes the record's bytes for its own letters, if
// they are any.
func TestEncoding(t *testing.T) {
	server := stores.Postgres(t)
	p := pool(t, server.Addr)
	for _, encoding := range []string{"LATIN1", "SQL_ASCII", "EUC_JP"} {
		exec(t, p, "CREATE DATABASE "+strings.ToLower(encoding)+" ENCODING '"+encoding+"' TEMPLATE template0")
		d := pg.Opened(t, "postgres://postgres@"+server.Addr+"/"+strings.ToLower(encoding)+"?sslmode=disable&election=e&create=true")
		e := feedtest.State(1, nil)
		e.LeaderID = "é 機"
		_, err := d.WriteEntry(t.Context(), e)
		if encoding == "EUC_JP" {
			feedtest.Permanent(t, err, "invalid byte sequence", "UTF8")
		} else if back := feedtest.Read(t, d); err != nil || back.LeaderID != e.LeaderID {
			t.Errorf("%s: %q, %v", encoding, back.LeaderID, err)
		}
	}
}

// What the server says in times of trouble may pass; what nobody can cure by waiting
// may not.
func TestServerErrors(t *testing.T) {
	for code, may := range map[string]bool{
		"57P01": true, "57P02": true, "57P03": true, "57014": true, "53100": true, "53200": true, "53300": true, "55P03": true,
		"40P01": true, "40001": true, "25006": true, "54000": true, "58030": true, "XX000": true,
		"28P01": false, "28000": false, "3D000": false, "42501": false, "42P01": false, "42703": false, "3F000": false, "22P05": false,
	} {
		d := postgres.NewDecider(saying{&pgconn.PgError{Code: code, Message: "m"}}, "t", "e", nil)
		_, err := d.WriteEntry(t.Context(), feedtest.State(1, nil))
		if may {
			feedtest.Passing(t, err, code, `"t"`, `"e"`)
		} else {
			feedtest.Permanent(t, err, code, `"t"`, `"e"`)
			if denied := errors.Is(err, leaderelection.ErrDenied); denied != (strings.HasPrefix(code, "28") || code == "42501") {
				t.Errorf("%s: access denied: %v", code, denied)
			}
		}
	}
}

// saying is a server that says no more than that.
type saying struct{ err error }

func (s saying) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, s.err
}
func (s saying) QueryRow(context.Context, string, ...any) pgx.Row { return s }
func (s saying) Scan(...any) error                                { return s.err }

// With an isolation level above READ COMMITTED PostgreSQL refuses writes, too, that it
// only suspects of a conflict: such a one has lost no race, and is tried again a few times.
func TestSuspectedConflict(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	d := decider(p)
	first := feedtest.Write(t, d, 1, nil)
	suspicious := postgres.NewDecider(&refusingUpdates{p, 1000}, "leaderelection", "e", nil)
	feedtest.Passing(t, feedtest.WriteError(t, suspicious, 2, first), "40001")
	feedtest.Write(t, postgres.NewDecider(&refusingUpdates{p, 3}, "leaderelection", "e", nil), 2, first)
	_, err := suspicious.WriteEntry(t.Context(), feedtest.State(2, first))
	var lost *leaderelection.LostRaceError
	if !errors.As(err, &lost) || lost.Current == nil || lost.Current.ElectionNumber != 2 {
		t.Errorf("WriteEntry: %v", err)
	}
}

type refusingUpdates struct {
	postgres.DB
	times int
}

func (d *refusingUpdates) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if strings.HasPrefix(sql, "UPDATE") && d.times > 0 {
		d.times--
		return saying{&pgconn.PgError{Code: "40001", Message: "could not serialize access"}}
	}
	return d.DB.QueryRow(ctx, sql, args...)
}

func TestOpen(t *testing.T) {
	server := stores.Postgres(t)
	host, port, _ := net.SplitHostPort(server.Addr)
	t.Setenv("PGUSER", "postgres")
	t.Setenv("PGHOST", host)
	t.Setenv("PGPORT", port)
	t.Setenv("PGDATABASE", "postgres")
	direct := url.QueryEscape("postgres://" + server.Addr + "/?sslmode=disable")
	d := pg.Opened(t, "postgres://"+server.Addr+"/postgres?sslmode=disable&election=web&create=true&feed_silence=1m&listen=true&pool_max_conns=2&application_name=me&connect_timeout=3&listen_url="+direct)
	feed := feedtest.Follow(t, d)
	feedtest.Write(t, d, 3, feedtest.Next(t, feed).Token)
	feedtest.Number(t, feed, 3)
	for _, address := range []string{
		"postgresql://" + server.Addr + "?election=web",
		"postgres:///postgres?election=web&table=leaderelection&create=false",
		"postgres:///?election=web&table=public.leaderelection&listen=false",
	} {
		feedtest.Reads(t, pg.Opened(t, address), 3)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	feedtest.Permanent(t, feedtest.ReadError(t, d), "closed pool")
}

func TestOpenRefuses(t *testing.T) {
	feedtest.OpenRefuses(t, postgres.Open, map[string]string{
		"mysql://localhost?election=e": "scheme",
		"postgres://localhost/db":      "?election=",
		"postgres:?election=e":         "//",
		"postgres://localhost/db?election=e&sslmode=disable&sslmode=require":                             `"sslmode" is given 2 times`,
		"postgres://localhost/db?election=e&colour=red":                                                  `no parameter "colour"`,
		"postgres://localhost/db?election=e&create=perhaps":                                              `"create"`,
		"postgres://localhost/db?election=e&listen=perhaps":                                              `"listen"`,
		"postgres://localhost/db?election=e&feed_silence=5":                                              `"feed_silence"`,
		"postgres://localhost/db?election=e&sslmode=sometimes":                                           "sslmode",
		"postgres://localhost/db?election=e&sslmode=disable&tls_ca=/x":                                   "leave out sslmode=disable",
		"postgres://localhost/db?election=e&tls_ca=/no/such/file":                                        "/no/such/file",
		"postgres://localhost/db?election=e&pool_max_conns=many":                                         "pool_max_conns",
		"postgres://u:s3cret@localhost/db?election=e&sslmode=x&password=s3cret":                          "sslmode",
		"postgres://localhost/db?election=e&listen_url=postgres%3A%2F%2Fu%3As3cret%40h%2F%3Fsslmode%3Dx": `"listen_url"`,
	})
}

// A password by scram-sha-256, over TLS that checks the server's certificate, with a
// certificate of the client's own; and each of these wrong.
func TestAccess(t *testing.T) {
	ca, other := feedtest.NewAuthority(t, "server", "candidate"), feedtest.NewAuthority(t)
	server := stores.Postgres(t)
	p := pool(t, server.Addr)
	exec(t, p, `CREATE ROLE app LOGIN PASSWORD 'secret'`)
	exec(t, p, `CREATE ROLE candidate LOGIN`)
	exec(t, p, `GRANT CREATE ON SCHEMA public TO app, candidate`)
	exec(t, p, `ALTER DEFAULT PRIVILEGES FOR ROLE app GRANT ALL ON TABLES TO candidate`)
	p.Close()
	for _, name := range []string{"server.pem", "server.key", "ca.pem"} {
		server.Give(t, name, content(t, ca.Path(name)))
	}
	server.Set("listen_addresses=127.0.0.1,127.0.0.2", "ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key", "ssl_ca_file=ca.pem", "password_encryption=scram-sha-256")
	server.HBA(t, "hostssl all candidate 127.0.0.1/32 cert", "hostssl all all 127.0.0.1/32 scram-sha-256")

	at := func(user, more string) string {
		return "postgres://" + user + "@" + server.Addr + "/postgres?election=e&create=true" + more
	}
	verify := "&sslmode=verify-full&tls_ca=" + ca.Path("ca.pem")
	d := pg.Opened(t, at("app:secret", verify+"&channel_binding=require"))
	feed := feedtest.Follow(t, d)
	token := feedtest.Write(t, d, 1, feedtest.Next(t, feed).Token)
	if n := feedtest.Next(t, feed); n.Err != nil || n.Token != token {
		t.Errorf("%+v", n)
	}
	own := "&tls_cert=" + ca.Path("candidate.pem") + "&tls_key=" + ca.Path("candidate.key")
	token = feedtest.Write(t, pg.Opened(t, at("candidate", verify+own)), 2, token)
	if n := feedtest.Next(t, feed); n.Err != nil || n.Token != token {
		t.Errorf("%+v", n)
	}
	t.Setenv("PGPASSWORD", "secret")
	feedtest.Reads(t, pg.Opened(t, at("app", "&sslmode=require")), 2)
	t.Setenv("PGPASSWORD", "")

	// The authority's certificate may be renewed: the file is read for each connection.
	renewed := filepath.Join(t.TempDir(), "ca.pem")
	write(t, renewed, content(t, other.Path("ca.pem")))
	late := pg.Opened(t, at("app:secret", "&tls_ca="+renewed))
	feedtest.Refuses(t, late, "certificate", "tls_ca")
	write(t, renewed, content(t, ca.Path("ca.pem")))
	feedtest.Reads(t, late, 2)

	for address, words := range map[string][]string{
		at("app:wr0ng", verify): {"28P01", "check user, password"},
		at("app", verify):       {"check user, password"},
		at("candidate", verify): {"28000", "check user, password"},
		at("app:secret", "&sslmode=verify-full&tls_ca="+other.Path("ca.pem")): {"certificate", "tls_ca"},
		at("candidate", own):                 {"certificate", "tls_ca"},
		at("app:secret", "&sslmode=disable"): {"28000", "pg_hba.conf"},
		strings.Replace(at("app:secret", verify), "127.0.0.1", "127.0.0.2", 1): {"certificate", "tls_ca"},
	} {
		d := pg.Opened(t, address)
		feedtest.Refuses(t, d, words...)
		_, err := d.ReadCurrent(t.Context())
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("a password is in the error: %v", err)
		}
	}
}

func content(t *testing.T, file string) []byte {
	t.Helper()
	c, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// One name leads two candidates to two tables: both say which, a handle stays with its own,
// and the examination warns.
func TestPlace(t *testing.T) {
	server := stores.Postgres(t, "fsync=on")
	p := pool(t, server.Addr)
	exec(t, p, `CREATE ROLE app LOGIN; GRANT CREATE ON SCHEMA public TO app; CREATE SCHEMA AUTHORIZATION app; CREATE ROLE other LOGIN; GRANT CREATE ON SCHEMA public TO other`, pgx.QueryExecModeSimpleProtocol)
	as := func(user string) *postgres.Decider {
		return pg.Opened(t, "postgres://"+user+"@"+server.Addr+"/postgres?sslmode=disable&election=e&create=true&pool_max_conns=1")
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
	feedtest.Permanent(t, feedtest.WriteError(t, app, 2, storetest.Foreign{}), want)
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
	d := pg.Opened(t, "postgres://"+server.Addr+"/postgres?sslmode=disable&user=two%20words%2B&application_name=a%20b%2Bc&options=-c%20work_mem%3D1MB&election=two%20words&create=true")
	feedtest.Write(t, d, 1, nil)
	n := value[int](t, p, "SELECT (SELECT count(*) FROM leaderelection WHERE election = 'two words') * count(*) FROM pg_stat_activity WHERE application_name = 'a b+c' AND usename = 'two words+'")
	if n != 1 {
		t.Errorf("%d rows and sessions have the names", n)
	}
}

// A candidate that gets no connection says so, and blames no server.
func TestBusyPool(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr, "pool_max_conns=2")
	d := decider(p)
	feedtest.Write(t, d, 1, nil)
	for range p.Config().MaxConns {
		c, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
	}
	for _, patience := range []time.Duration{50 * time.Millisecond, time.Minute} { // not by the ctx alone
		_, reading := d.ReadCurrent(storetest.Within(t, patience))
		feedtest.Passing(t, reading, "waited for a connection", "all 2 are in use", "a pool of its own")
	}
	_, writing := d.WriteEntry(storetest.Within(t, 50*time.Millisecond), feedtest.State(2, nil))
	feedtest.Passing(t, writing, "waited for a connection")
}

// A password that is renewed in its file counts for each later connection, of the pool and of the feed.
func TestRenewedPasswords(t *testing.T) {
	server := stores.Postgres(t)
	p := pool(t, server.Addr)
	exec(t, p, `CREATE ROLE app LOGIN PASSWORD 'first'`)
	exec(t, p, `GRANT CREATE ON SCHEMA public TO app`)
	p.Close()
	server.HBA(t, "host all postgres 127.0.0.1/32 trust", "host all app 127.0.0.1/32 scram-sha-256")
	p = pool(t, server.Addr)
	host, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env, passfile, service := filepath.Join(dir, "env"), filepath.Join(dir, "passfile"), filepath.Join(dir, "service")
	renew := func(password string) {
		exec(t, p, `ALTER ROLE app PASSWORD '`+password+`'`)
		line := fmt.Sprintf("%s:%s:*:app:%s\n", host, port, password)
		for file, text := range map[string]string{env: line, passfile: line, service: "[ours]\nuser=app\npassword=" + password + "\n"} {
			write(t, file, []byte(text))
		}
	}
	renew("first")
	at := func(user string) string {
		return "postgres://" + user + server.Addr + "/postgres?sslmode=disable&application_name=renewed"
	}
	t.Setenv("PGPASSFILE", env)
	const election = "&election=e&create=true"
	deciders := map[string]*postgres.Decider{
		"PGPASSFILE": pg.Opened(t, at("app@")+election),
		"passfile":   pg.Opened(t, at("app@")+election+"&passfile="+passfile),
		"service":    pg.Opened(t, at("")+election+"&service=ours&servicefile="+service),
		"listen_url": pg.Opened(t, at("app@")+election+"&listen_url="+url.QueryEscape(at("app@")+"&passfile="+passfile)),
	}
	for _, password := range []string{"first", "second"} {
		if password != "first" {
			renew(password)
			exec(t, p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'renewed'")
		}
		for name, d := range deciders {
			t.Run(password+" by "+name, func(t *testing.T) {
				feedtest.Eventually(t, "it is read", func() bool { return feedtest.ReadError(t, d) == nil })
				feedtest.Number(t, feedtest.Follow(t, d), 0)
			})
		}
	}
}
