package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	// unfit says why the database or the table cannot keep a fence. Nil: nothing is asked.
	unfit func(ctx context.Context, db *sql.DB, table string, oneWriter bool) error
}

// statement is SQL. An empty one is none.
type statement struct {
	text      string
	announced bool // it has the parameter announced, and tells the number there
}

// PostgreSQL is the dialect of PostgreSQL.
func PostgreSQL() Dialect {
	return Dialect{name: "PostgreSQL", mark: func(i int) string { return "$" + strconv.Itoa(i) }, key: "VARCHAR(255)",
		shared: " FOR SHARE", upsert: onConflict("$"), raising: sql.LevelReadCommitted, enter: enterPostgreSQL, unfit: unfitPostgreSQL,
		alias: " AS f", replace: onConflictRow}
}

// MySQL is the dialect of MySQL and MariaDB.
func MySQL() Dialect {
	return Dialect{name: "MySQL", mark: question, key: "VARBINARY(255)", // any other type takes some names for one
		shared: " LOCK IN SHARE MODE", raising: sql.LevelReadCommitted, enter: enterMySQL, unfit: unfitMySQL, replace: onDuplicateKeyRow, unsure: true,
		upsert: "INSERT INTO %s (election, number) VALUES (?, ?) ON DUPLICATE KEY UPDATE number = GREATEST(number, VALUES(number))"}
}

// SQLite is the dialect of SQLite, which has one writer at a time and no row locks. Begin its
// transactions as immediate ones (the driver's _txlock=immediate or the like). Otherwise two
// transactions that check before they write fail with SQLITE_BUSY.
func SQLite() Dialect {
	return Dialect{name: "SQLite", mark: question, key: "VARCHAR(255)", upsert: onConflict("?"),
		alias: " AS f", replace: onConflictRow}
}

func question(int) string { return "?" }

// onConflict is the statement of databases that have this clause.
func onConflict(mark string) string {
	return "INSERT INTO %s AS f (election, number) VALUES (" + mark + "1, " + mark + "2)" +
		" ON CONFLICT (election) DO UPDATE SET number = excluded.number WHERE f.number < excluded.number"
}

// enterPostgreSQL sets the limit, and tells to which number the fence is about to be raised.
// Transactions that lock a row FOR SHARE overtake one that waits to update it, for as long as
// there are any. So a writer that raises the fence says so first, in the election's second row,
// and writers of earlier leaderships are turned away from then on. That row is only a courtesy:
// the fence decides.
func enterPostgreSQL(table string, idle time.Duration, alone bool) statement {
	const limit = "idle_in_transaction_session_timeout"
	var all []string
	if idle > 0 {
		// The lesser of the session's own, if it has one, and this.
		all = append(all, fmt.Sprintf("set_config('%s', (extract(epoch FROM LEAST(NULLIF(current_setting('%s')::interval, interval '0'), interval '%d ms')) * 1000)::int8::text, true) IS NULL",
			limit, limit, idle.Milliseconds()))
	}
	if alone {
		all = append(all, "set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true) IS NULL")
		return statement{text: "SELECT " + strings.Join(all, ", ")}
	}
	// A condition that is never true, so that one number is all that is returned.
	text := "COALESCE((SELECT number FROM " + table + " WHERE election = $1), 0)"
	if len(all) > 0 {
		text = "CASE WHEN " + all[0] + " THEN 0 ELSE " + text + " END"
	}
	return statement{text: "SELECT " + text, announced: true}
}

// enterMySQL sets the limit. There is none for one transaction, so it stays with the
// connection: one that is idle for as long outside of transactions is closed as well,
// and the pool makes another.
func enterMySQL(_ string, idle time.Duration, _ bool) statement {
	if idle <= 0 {
		return statement{}
	}
	seconds := max(1, (idle+time.Second-1)/time.Second)
	return statement{text: fmt.Sprintf("SET SESSION wait_timeout = LEAST(@@SESSION.wait_timeout, %d)", seconds)}
}

// unfitPostgreSQL refuses a table that a crash empties. One that is missing is the next
// statement's to tell of.
func unfitPostgreSQL(ctx context.Context, db *sql.DB, table string, _ bool) error {
	var persistence string
	err := db.QueryRowContext(ctx, "SELECT relpersistence::text FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1)", table).Scan(&persistence)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case persistence != "p":
		return errors.New("it is UNLOGGED or TEMPORARY, and a crash of the server would empty it: create it again, or ALTER TABLE ... SET LOGGED")
	}
	return nil
}

// unfitMySQL refuses a table without transactions, and a server that is one of several
// writers.
func unfitMySQL(ctx context.Context, db *sql.DB, table string, oneWriter bool) error {
	schema, name, two := strings.Cut(table, ".")
	if !two {
		schema, name = "", table
	}
	var engine sql.NullString
	err := db.QueryRowContext(ctx, "SELECT engine FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?", schema, name).Scan(&engine)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err == nil && !strings.EqualFold(engine.String, "InnoDB") && !strings.EqualFold(engine.String, "ROCKSDB") {
		return fmt.Errorf("its engine is %q, which has no transactions: ALTER TABLE ... ENGINE=InnoDB", engine.String)
	}
	if oneWriter {
		return nil
	}
	is := map[string]string{}
	for _, query := range []string{"SHOW GLOBAL STATUS WHERE Variable_name = 'wsrep_cluster_size'",
		"SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode')"} {
		if err := settings(ctx, db, query, is); err != nil {
			return err
		}
	}
	const advice = "a lock holds on one node only: write to one node and set Options.OneWriter, or use Condition or Upsert"
	if size, _ := strconv.Atoi(is["wsrep_cluster_size"]); size > 1 && !strings.EqualFold(is["wsrep_on"], "OFF") {
		return fmt.Errorf("the server is one of %d nodes of a Galera cluster, and %s", size, advice)
	}
	if strings.EqualFold(is["group_replication_single_primary_mode"], "OFF") && is["group_replication_group_name"] != "" {
		return fmt.Errorf("the server is of a replication group with several primaries, and %s", advice)
	}
	return nil
}

// settings adds what a SHOW tells.
func settings(ctx context.Context, db *sql.DB, query string, is map[string]string) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		is[strings.ToLower(name)] = value
	}
	return rows.Err()
}
