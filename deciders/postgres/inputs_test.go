package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// What is in the table and no record of ours is reported, and left alone.
func TestForeignRecordIsLeftAlone(t *testing.T) {
	p := pool(t, stores.Postgres(t).Addr)
	exec(t, p, postgres.Schema("leaderelection"))
	for name, record := range map[string]string{
		"another object":    `{"leader":"a"}`,
		"null":              `null`,
		"a list":            `[]`,
		"a missing field":   `{"leaderelection":1,"leader_id":"a"}`,
		"hand-edited":       `{"leaderelection":1,"leader_id":7}`,
		"given twice":       `{"leaderelection":1,"leader_id":"a","leader_id":"b"}`,
		"of a newer format": `{"leaderelection":2}`,
	} {
		t.Run(name, func(t *testing.T) {
			exec(t, p, "INSERT INTO leaderelection VALUES ($1, 'v', now(), $2, 'c')", t.Name(), record)
			feedtest.Foreign(t, postgres.NewDecider(p, "leaderelection", t.Name(), nil), `"leaderelection"`, t.Name())
			var left string
			if err := p.QueryRow(t.Context(), "SELECT record::text FROM leaderelection WHERE election = $1", t.Name()).Scan(&left); err != nil || left != record {
				t.Errorf("what is left is %q (%v)", left, err)
			}
		})
	}
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

func TestBadNames(t *testing.T) {
	p := pool(t, "127.0.0.1:1") // nobody is asked
	for _, names := range [][2]string{
		{"", "e"}, {"t", ""}, {"a.b.c", "e"}, {".t", "e"}, {"t.", "e"}, {"t\x00", "e"}, {"t", "e\x00"},
		{strings.Repeat("t", 64), "e"}, {"t", strings.Repeat("e", 1001)},
	} {
		feedtest.Refuses(t, postgres.NewDecider(p, names[0], names[1], nil), "name must")
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
	d := postgres.NewDecider(p, "leaderelection", "e", create)
	_, err := d.WriteEntry(t.Context(), feedtest.State(1, foreign{}))
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

type foreign struct{}

func (foreign) CommitTS() time.Time { return time.Time{} }

// The least permissions that the documentation names, and less.
func TestPermissions(t *testing.T) {
	server := stores.Postgres(t)
	p := pool(t, server.Addr)
	exec(t, p, postgres.Schema("leaderelection")+`
		CREATE ROLE candidate LOGIN; CREATE ROLE observer LOGIN; CREATE ROLE nobody LOGIN; CREATE SCHEMA secret;
		GRANT SELECT, INSERT, UPDATE ON leaderelection TO candidate; GRANT SELECT ON leaderelection TO observer`, pgx.QueryExecModeSimpleProtocol)
	as := func(user, more string) *postgres.Decider {
		return opened(t, fmt.Sprintf("postgres://%s@%s/postgres?sslmode=disable&election=e%s", user, server.Addr, more))
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
	feedtest.Refuses(t, opened(t, "postgres://app@"+server.Addr+"/nowhere?sslmode=disable&election=e"), `"nowhere" does not exist`, "make the database")
	feedtest.Refuses(t, opened(t, "postgres://nobody@"+server.Addr+"/postgres?sslmode=disable&election=e"), `"nobody" does not exist`, "check user")
	feedtest.Refuses(t, opened(t, "postgres://app@"+server.Addr+"/postgres?sslmode=require&election=e"), "TLS")
	feedtest.Refuses(t, postgres.NewDecider(pool(t, server.Addr), "nowhere.t", "e", create), "make the schema")

	crowd := pool(t, server.Addr, "pool_max_conns=20")
	for range 10 {
		c, err := crowd.Acquire(t.Context())
		if err != nil {
			break
		}
		defer c.Release()
	}
	for _, err := range feedtest.Errors(t, opened(t, "postgres://app@"+server.Addr+"/postgres?sslmode=disable&election=e")) {
		feedtest.Passing(t, err, "max_connections")
	}
}

// Of several hosts the one that takes writes is meant, unless the URL says otherwise.
func TestSeveralHosts(t *testing.T) {
	stores.Nightly(t, "it starts a standby")
	primary := stores.Postgres(t)
	standby := stores.PostgresStandby(t, primary)
	at := "postgres://postgres@" + standby.Addr + "," + primary.Addr + "/postgres?sslmode=disable&election=e&create=true"
	feedtest.Write(t, opened(t, at), 1, nil)
	feedtest.Passing(t, feedtest.WriteError(t, opened(t, at+"&target_session_attrs=any"), 2, nil), "connect to the primary")
}

// A standby serves reads, and nothing else until it is promoted. That may pass.
func TestStandby(t *testing.T) {
	stores.Nightly(t, "it starts a standby")
	primary := stores.Postgres(t)
	onPrimary := postgres.NewDecider(pool(t, primary.Addr), "leaderelection", "e", create)
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
		d := opened(t, "postgres://postgres@"+server.Addr+"/"+strings.ToLower(encoding)+"?sslmode=disable&election=e&create=true")
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
	d := postgres.NewDecider(p, "leaderelection", "e", create)
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

// A bare number counts nanoseconds: nobody means so few.
func TestBareNumbers(t *testing.T) {
	p := pool(t, "127.0.0.1:1")
	feedtest.Refuses(t, postgres.NewDecider(p, "leaderelection", "one", &postgres.Options{FeedSilence: 10}), "nanoseconds")
}
