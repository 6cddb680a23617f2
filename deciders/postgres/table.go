package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/postgres/internal/commit"
)

// checkNames says what PostgreSQL would not allow of a table's and an election's name.
func checkNames(table, election string) (wrong error) {
	parts := strings.Split(table, ".")
	for _, p := range parts {
		if p == "" || len(p) > 63 || len(parts) > 2 || strings.ContainsRune(p, 0) {
			wrong = errors.New("the table's name must be one or two names with a dot between, each of 1 to 63 bytes")
		}
	}
	if election == "" || len(election) > 1000 || strings.ContainsRune(election, 0) {
		wrong = errors.Join(wrong, errors.New("the election's name must have 1 to 1000 bytes, none of them zero"))
	}
	return wrong
}

// Schema returns the statement that makes the table, for your migrations. Table is as for
// NewDecider. Its pages keep room for the next version of each row.
func Schema(table string) string {
	return fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
	election text PRIMARY KEY,
	version text NOT NULL,
	written timestamptz NOT NULL,
	record json NOT NULL,
	channel text NOT NULL
) WITH (fillfactor = 50);
`, quoted(table))
}

// quoted is a table's name, perhaps with its schema's, as SQL takes it.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }

// relation is what find learns once about the table. Its statements name the schema, since another
// session of the pool may have another search_path. A time is in microseconds since 1970: the same in all time
// zones and date styles. A write returns its time, or no row, and notifies within its transaction.
// It ends with commit.Proof, and waits until it is safe, also on the standbys that must have it,
// whatever the session's default is.
type relation struct {
	server                  string // host and port, as the server knows itself; empty on a socket
	database, schema, table string

	read   string // $1 election
	update string // $1 election, $2 new version, $3 record, $4 version, $5 payload
	insert string // $1 election, $2 version, $3 record, $4 newChannel, $5 hello
	touch  string // $1 election, $2 version: changes nothing, and waits as a write does
}

// String names the place without the server.
func (r *relation) String() string {
	return fmt.Sprintf("database %q, table %s", r.database, pgx.Identifier{r.schema, r.table}.Sanitize())
}

// look is the query for a table's place and nature. The name is looked up as any
// statement would, by search_path.
const look = `
SELECT COALESCE(pg_catalog.host(pg_catalog.inet_server_addr()) || ':' || pg_catalog.inet_server_port(), ''), pg_catalog.current_database()::text, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, EXISTS (
	SELECT FROM pg_catalog.pg_index i
	JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
	WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
	AND i.indnkeyatts = 1 AND a.attname = 'election')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = pg_catalog.to_regclass($1::text)`

// find returns the table. It asks once, and again if the table is unfit. One that is missing it makes, if it may.
func (b *backend) find(ctx context.Context) (*relation, error) {
	if r := b.found.Load(); r != nil {
		return r, nil
	}
	r, err := b.look(ctx)
	if errors.Is(err, errNoTable) && b.opts.CreateTable {
		// That another candidate makes it at the same moment is no error, though PostgreSQL says so.
		if _, err := b.db.Exec(ctx, Schema(b.name), b.mode); err != nil && code(err) != uniqueViolation && code(err) != duplicateTable {
			return nil, err
		}
		r, err = b.look(ctx)
	}
	if err != nil {
		return nil, err
	}
	b.found.Store(r)
	return r, nil
}

var errNoTable = errors.New("there is no such table")

func (b *backend) look(ctx context.Context) (*relation, error) {
	var r relation
	var kind, persistence string
	var unique bool
	err := b.db.QueryRow(ctx, look, b.mode, quoted(b.name)).Scan(&r.server, &r.database, &r.schema, &r.table, &kind, &persistence, &unique)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, store.Wrong("%w: %s", errNoTable, b.makeIt())
	case err != nil:
		return nil, err
	case kind != "r":
		return nil, store.Wrong("it is not an ordinary table (relkind %q): name another", kind)
	case persistence == "u":
		return nil, store.Wrong("the table is UNLOGGED, and a crash of the server would empty it: ALTER TABLE %s SET LOGGED", quoted(b.name))
	case persistence == "t":
		return nil, store.Wrong("the table is TEMPORARY, and no other session sees it: name another")
	case !unique:
		return nil, store.Wrong("the table has no unique index on its column election; it must be as in\n%s", Schema(b.name))
	}
	const micros = `(extract(epoch from written) * 1000000)::int8`
	name := pgx.Identifier{r.schema, r.table}.Sanitize()
	r.read = `SELECT version, channel, ` + micros + `, record::text FROM ` + name + ` WHERE election = $1::text`
	r.update = `UPDATE ` + name + ` SET version = $2::text, written = clock_timestamp(), record = $3::json
WHERE election = $1::text AND version = $4::text
RETURNING ` + micros + `, pg_catalog.pg_notify(channel, ` + micros + ` || ' ' || $5::text), ` + commit.Proof
	r.insert = `INSERT INTO ` + name + ` (election, version, written, record, channel)
VALUES ($1::text, $2::text, clock_timestamp(), $3::json, $4::text) ON CONFLICT (election) DO NOTHING
RETURNING ` + micros + `, pg_catalog.pg_notify($5::text, ''), ` + commit.Proof
	r.touch = `UPDATE ` + name + ` SET version = version WHERE election = $1::text AND version = $2::text RETURNING ` + commit.Proof
	return &r, nil
}

// makeIt is what to do if there is no table.
func (b *backend) makeIt() string {
	return "make it, or set Options.CreateTable (create=true in an address):\n" + Schema(b.name)
}

// maxPayload is how many bytes a notification carries, with a little to spare
// of the 8000 that PostgreSQL allows.
const maxPayload = 7900

// A row's changes are notified on a channel of its own, which is kept in the row and
// cannot be guessed: PostgreSQL lets every user of a database listen and notify on
// every channel. That a row was made is said, and no more than that, on a channel
// that is known.

// newChannel is for a new row.
func newChannel() string { return "leaderelection_" + strings.ToLower(rand.Text()) }

// hello is where it is said that the row was made. It is of the table's full name,
// since channels are a whole database's, and not longer than names may be.
func (r *relation) hello(election string) string {
	sum := sha256.Sum256([]byte(r.schema + "\x00" + r.table + "\x00" + election))
	return fmt.Sprintf("leaderelection_%x", sum[:16])
}

// payload is the content of an update's notification, after its time. A record that is too long is
// left out, and followers read it.
func payload(version string, data []byte) string {
	if len(data)+len(version) > maxPayload {
		return version
	}
	return version + "\n" + string(data)
}

// parsePayload reads an update's notification. It reports whether it has the whole record.
func parsePayload(payload string) (version string, micros int64, record string, whole bool) {
	head, record, whole := strings.Cut(payload, "\n")
	at, version, _ := strings.Cut(head, " ")
	micros, err := strconv.ParseInt(at, 10, 64)
	return version, micros, record, whole && version != "" && err == nil
}

// The codes of errors of the server that are no news; see
// https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	uniqueViolation      = "23505"
	duplicateTable       = "42P07"
	undefinedTable       = "42P01"
	serializationFailure = "40001"
)

// code is that of an error of the server, else empty.
func code(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}

// judge explains an error of the server by its code. What may pass, and so is no
// more than explained: servers that start, stop or recover (57P0x), that have too
// many clients (53300) or too little room (53100), statements that were cancelled
// (57014, 55P03), deadlocks and serialization failures (40xxx).
func (b *backend) judge(code string) store.Verdict {
	switch code {
	case undefinedTable:
		b.found.Store(nil) // it was there
		if b.opts.CreateTable {
			return store.Passing("it will be made again")
		}
		return store.Permanent(b.makeIt())
	case "28P01", "28000":
		return store.Denied("check user, password and pg_hba.conf")
	case "3D000":
		return store.Permanent("make the database, or name another")
	case "42501":
		return store.Denied(fmt.Sprintf("candidates need GRANT SELECT, INSERT, UPDATE ON %s, observers SELECT, and to create it takes CREATE on its schema; row-level security must not hide rows", quoted(b.name)))
	case "3F000":
		return store.Permanent("make the schema, or name another")
	case "22P05", "22021":
		return store.Permanent("the record has letters that the database's encoding lacks; use a database in UTF8")
	case "42703", "42804", "42P10", "42883", "42846", "22P02", "42809", "23502", "23514", "428C9":
		return store.Permanent(fmt.Sprintf("the table must be as in\n%s", Schema(b.name)))
	case "25006":
		return store.Passing("this is a standby, or a read-only session: connect to the primary (target_session_attrs=read-write)")
	case "53300":
		return store.Passing("raise max_connections, or let the clients have fewer")
	case "54000":
		return store.Passing("if the NOTIFY queue is full, a session that listens has been in one transaction for very long: see pg_notification_queue_usage()")
	}
	return store.Verdict{}
}
