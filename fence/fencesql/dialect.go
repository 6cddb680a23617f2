package fencesql

import (
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"
)

// Dialect is what differs from one database to another.
type Dialect struct {
	name    string
	mark    func(i int) string // the i-th parameter, from 1
	key     string             // the type of the column election
	shared  string             // appended to a SELECT: lock the row for others to read
	upsert  string             // raise the fence; the table, parameters election and number
	raising sql.IsolationLevel // of the transaction that raises it

	alias   string                                           // of the table in an INSERT, with the blank before it
	replace func(key, columns []string, fence string) string // of an Upsert, for a row that is there
	unsure  bool                                             // whether the rows affected by that tell nothing
	// enter is what a transaction begins with: alone is for the one that raises.
	enter func(table string, idle time.Duration, alone bool) statement
}

// statement is SQL, and its parameters for an election. An empty one is none.
type statement struct {
	text string
	args func(election string) []any
}

// The databases.
var (
	PostgreSQL = Dialect{name: "PostgreSQL", mark: func(i int) string { return "$" + strconv.Itoa(i) }, key: "VARCHAR(255)",
		shared: " FOR SHARE", upsert: onConflict("$"), raising: sql.LevelReadCommitted, enter: enterPostgreSQL,
		alias: " AS f", replace: onConflictRow}
	// MySQL is for MariaDB, too.
	MySQL = Dialect{name: "MySQL", mark: question, key: "VARBINARY(255)", // any other type takes some names for one
		shared: " LOCK IN SHARE MODE", raising: sql.LevelReadCommitted, enter: enterMySQL, replace: onDuplicateKeyRow, unsure: true,
		upsert: "INSERT INTO %s (election, number) VALUES (?, ?) ON DUPLICATE KEY UPDATE number = GREATEST(number, VALUES(number))"}
	// SQLite has one writer at a time and no row locks: begin its transactions
	// as immediate ones (the driver's _txlock=immediate or the like), or two that
	// check before they write end in SQLITE_BUSY.
	SQLite = Dialect{name: "SQLite", mark: question, key: "VARCHAR(255)", upsert: onConflict("?"),
		alias: " AS f", replace: onConflictRow}
)

func question(int) string { return "?" }

// onConflict is the statement of databases that have this clause.
func onConflict(mark string) string {
	return "INSERT INTO %s AS f (election, number) VALUES (" + mark + "1, " + mark + "2)" +
		" ON CONFLICT (election) DO UPDATE SET number = excluded.number WHERE f.number < excluded.number"
}

// enterPostgreSQL sets the limit, and passes a turnstile: those who lock a row FOR SHARE
// overtake one who waits to update it, for as long as there are any. An advisory lock
// queues fairly. It is no more than a queue: what decides is the row.
func enterPostgreSQL(table string, idle time.Duration, alone bool) statement {
	const limit = "idle_in_transaction_session_timeout"
	turnstile := "pg_catalog.pg_advisory_xact_lock_shared($1)"
	if alone {
		turnstile = "pg_catalog.pg_advisory_xact_lock($1)"
	}
	text := "SELECT " + turnstile
	if idle > 0 {
		// The lesser of the session's own, if it has one, and this.
		text = fmt.Sprintf("SELECT set_config('%s', (extract(epoch FROM LEAST(NULLIF(current_setting('%s')::interval, interval '0'), interval '%d ms')) * 1000)::int8::text, true), %s",
			limit, limit, idle.Milliseconds(), turnstile)
	}
	return statement{text, func(election string) []any {
		sum := sha256.Sum256([]byte("leaderelection/fencesql\x00" + table + "\x00" + election))
		return []any{int64(binary.BigEndian.Uint64(sum[:8]))}
	}}
}

// enterMySQL sets the limit. There is none for one transaction, so it stays with the
// connection: one that is idle for as long outside of transactions is closed as well,
// and the pool makes another.
func enterMySQL(_ string, idle time.Duration, _ bool) statement {
	if idle <= 0 {
		return statement{}
	}
	seconds := max(1, (idle+time.Second-1)/time.Second)
	return statement{fmt.Sprintf("SET SESSION wait_timeout = LEAST(@@SESSION.wait_timeout, %d)", seconds), func(string) []any { return nil }}
}
