package table

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// The codes of errors of the server that are no news; see
// https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	uniqueViolation      = "23505"
	duplicateTable       = "42P07"
	undefinedTable       = "42P01"
	SerializationFailure = "40001"
)

// Code is that of an error of the server, else empty.
func Code(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}

// Judge explains an error of the server by its code. What may pass, and so is no
// more than explained: servers that start, stop or recover (57P0x), that have too
// many clients (53300) or too little room (53100), statements that were cancelled
// (57014, 55P03), deadlocks and serialization failures (40xxx).
func (t *Table) Judge(code string) store.Verdict {
	switch code {
	case undefinedTable:
		t.found.Store(nil) // it was there
		if t.create {
			return store.Passing("it will be made again")
		}
		return store.Permanent(t.makeIt())
	case "28P01", "28000":
		return store.Denied("check user, password and pg_hba.conf")
	case "3D000":
		return store.Permanent("make the database, or name another")
	case "42501":
		return store.Denied(fmt.Sprintf("candidates need GRANT SELECT, INSERT, UPDATE ON %s, observers SELECT, and to create it takes CREATE on its schema; row-level security must not hide rows", t.Quoted))
	case "3F000":
		return store.Permanent("make the schema, or name another")
	case "22P05", "22021":
		return store.Permanent("the record has letters that the database's encoding lacks; use a database in UTF8")
	case "42703", "42804", "42P10", "42883", "42846", "22P02", "42809", "23502", "23514", "428C9":
		return store.Permanent(fmt.Sprintf("the table must be as in\n%s", Schema(t.name)))
	case "25006":
		return store.Passing("this is a standby, or a read-only session: connect to the primary (target_session_attrs=read-write)")
	case "53300":
		return store.Passing("raise max_connections, or let the clients have fewer")
	case "54000":
		return store.Passing("if the NOTIFY queue is full, a session that listens has been in one transaction for very long: see pg_notification_queue_usage()")
	}
	return store.Verdict{}
}
