package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// MySQL is the Dialect of MySQL 5.7 and newer, and of MariaDB 10.3 and newer. Number returns the
// number of a server's error, 0 for other errors. It depends on the driver's type of errors.
// Package deciders/sql/mysql has it for github.com/go-sql-driver/mysql.
func MySQL(number func(err error) int) Dialect {
	return Dialect{
		Name:  "mysql",
		Quote: func(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" },
		// VARBINARY and MEDIUMBLOB know no collation and no character set.
		Table: `CREATE TABLE IF NOT EXISTS %s (
	election VARBINARY(255) NOT NULL PRIMARY KEY,
	version VARBINARY(64) NOT NULL,
	written BIGINT NOT NULL,
	record MEDIUMBLOB NOT NULL
) ENGINE=InnoDB
`,
		// In UTC: an hour of the session's time zone may come twice.
		Now:           "LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))",
		NowIsInsertID: true,
		Dual:          " FROM DUAL",
		// MariaDB alone reads the comment, and has this variable. A replica that is given
		// the statement, and not the row, would ask its own session.
		Alone:      "@@autocommit = 1 AND (@@log_bin = 0 OR @@binlog_format <> 'STATEMENT') /*M! AND @@in_transaction = 0 */",
		Late:       "the server did not answer in time: see whether somebody holds the row's lock (information_schema.innodb_trx)",
		Judge:      func(err error) Fault { return judgeMySQL(number(err)) },
		Inspect:    inspectMySQL,
		Running:    runningMySQL,
		Durability: durabilityMySQL,
	}
}

// judgeMySQL explains an error of the server by its number, see
// https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html.
func judgeMySQL(number int) Fault {
	switch number {
	case 1062, 1586:
		return Fault{Duplicate, ""}
	case 1146:
		return Fault{NoTable, ""}
	case 1054, 1136, 1264, 1292, 1364, 1366, 1265, 1406, 1048, 1365, 3819, 4025, 1288, 1471, 3105:
		return Fault{NotAsDocumented, ""}
	case 1045, 1698, 1044, 1130, 1251, 1862, 3118, 4151:
		return Fault{Denied, "check user and password, and from which hosts the user may connect (mysql.user)"}
	case 1142, 1143, 1227, 1370:
		return Fault{Denied, "candidates need GRANT SELECT, INSERT, UPDATE on the table, observers SELECT, and to make it takes CREATE"}
	case 1049:
		return Fault{Permanent, "make the database, or name another"}
	case 1046:
		return Fault{Permanent, "name a database: mysql://host/database"}
	case 3159:
		return Fault{Permanent, "the server wants TLS: add tls=true"}
	case 1064, 1193, 1305:
		return Fault{Permanent, "the server must be MySQL from 5.7, or MariaDB from 10.3"}
	case 1290, 1836, 3100:
		return Fault{ReadOnly, "this server takes no writes (read_only): connect to the primary"}
	case 1792:
		return Fault{ReadOnly, "this session is read-only (transaction_read_only, tx_read_only in MariaDB): set it to 0 at the server, in its init_connect and in the pool's configuration"}
	case 1047, 1180:
		return Fault{Passing, "this node of a Galera cluster has no quorum, or is not in step yet: connect to another"}
	case 1205:
		return Fault{Passing, "somebody holds the row's lock: see who has a transaction open on the table (information_schema.innodb_trx)"}
	case 1213, 1020:
		return Fault{Passing, "the server has undone it: a deadlock, or another node's write came first"}
	case 1040, 1203, 1226:
		return Fault{Passing, "raise max_connections or the user's limits, or let the clients have fewer"}
	case 1021, 1114, 1041, 1038:
		return Fault{Passing, "the server has no room left, on disk or in memory"}
	case 1129:
		return Fault{Passing, "the server refuses this host after too many failed connections: FLUSH HOSTS, or raise max_connect_errors"}
	}
	return Fault{}
}

// runningMySQL asks for the user's own sessions, which takes no privilege.
func runningMySQL(ctx context.Context, db Asker, mark string) (states []string, err error) {
	rows, err := db.QueryContext(ctx, `SELECT COALESCE(NULLIF(state, ''), command) FROM information_schema.processlist
WHERE info LIKE CONCAT('%', ?, '%') AND info NOT LIKE '%information_schema.processlist%'`, mark)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var state string
		if err := rows.Scan(&state); err != nil {
			return nil, err
		}
		states = append(states, state)
	}
	return states, rows.Err()
}

// inspectMySQL says why a table will not do. Whoever has any right on it may ask.
func inspectMySQL(ctx context.Context, db Asker, schema, table string) (string, error) {
	const query = `SELECT CONCAT(@@hostname, ':', @@port), t.table_schema, t.table_type, COALESCE(t.engine, ''), COALESCE((
	SELECT c.data_type FROM information_schema.columns c
	WHERE c.table_schema = t.table_schema AND c.table_name = t.table_name AND c.column_name = 'election'), ''), EXISTS (
	SELECT s.index_name FROM information_schema.statistics s
	WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name AND s.non_unique = 0
	GROUP BY s.index_name HAVING COUNT(*) = 1 AND MAX(s.column_name) = 'election' AND MAX(s.sub_part) IS NULL)
FROM information_schema.tables t WHERE t.table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND t.table_name = ?`
	var server, database, kind, engine, column string
	var unique bool
	err := db.QueryRowContext(ctx, query, schema, table).Scan(&server, &database, &kind, &engine, &column, &unique)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", nil
	case err != nil:
		return "", err
	case kind != "BASE TABLE":
		return "", store.Wrong("it is not an ordinary table but a %s: name another", kind)
	case !strings.EqualFold(engine, "InnoDB") && !strings.EqualFold(engine, "ROCKSDB"):
		return "", store.Wrong("the table's engine is %s, which may forget confirmed writes: ALTER TABLE ... ENGINE=InnoDB", engine)
	case !strings.EqualFold(column, "varbinary") && !strings.EqualFold(column, "binary"):
		return "", store.Wrong("the type of its column election is %q, which may take one name for another: it must be VARBINARY(255)", strings.ToUpper(column))
	case !unique:
		return "", store.Wrong("it has no unique index on its column election alone: ALTER TABLE ... ADD UNIQUE (election)")
	}
	return fmt.Sprintf("%s, database %q", server, database), nil
}

// mysqlSettings are asked for by name, since each server has some of them only. Anybody
// may ask.
const (
	mysqlVariables = `SHOW VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'sync_binlog', 'log_bin',
	'read_only', 'super_read_only', 'tx_isolation', 'transaction_isolation',
	'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled', 'rpl_semi_sync_master_timeout', 'rpl_semi_sync_source_timeout',
	'wsrep_on', 'wsrep_provider_options')`
	mysqlStatus = `SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status',
	'Slaves_connected', 'Replicas_connected', 'wsrep_cluster_status', 'wsrep_cluster_size')`
)

// neverAlone is the least rpl_semi_sync_..._timeout, in milliseconds, that is taken for
// one that never comes: a day.
const neverAlone = 24 * 3600 * 1000

// durabilityMySQL is MySQL's Dialect.Durability.
func durabilityMySQL(ctx context.Context, db *sql.DB) ([]durability.Warning, error) {
	s := settings{}
	for _, query := range []string{mysqlVariables, mysqlStatus} {
		if err := s.ask(ctx, db, query); err != nil {
			return nil, err
		}
	}
	var all warnings
	if v := s.first("innodb_flush_log_at_trx_commit"); v != "1" {
		all.add("innodb_flush_log_at_trx_commit is "+v+": a crash of the machine forgets confirmed writes, and two may lead", "set innodb_flush_log_at_trx_commit = 1")
	}
	if s.is("innodb_doublewrite", "OFF", "DETECT_ONLY") {
		all.add("innodb_doublewrite is off: a crash of the machine may leave a torn page, and with it no record or an old one", "set innodb_doublewrite = ON")
	}
	if v := s.first("sync_binlog"); s.is("log_bin", "ON") && v != "1" && !s.is("wsrep_on", "ON") {
		all.add("sync_binlog is "+v+" with a binary log: after a crash of the machine the server undoes confirmed writes that the log lacks, and two may lead", "set sync_binlog = 1")
	}
	if s.is("read_only", "ON", "1") || s.is("super_read_only", "ON") {
		all.add("read_only is on: this server takes no writes of candidates, and may be behind", "name the primary in the URL")
	}
	if s.is("tx_isolation", "READ-UNCOMMITTED") || s.is("transaction_isolation", "READ-UNCOMMITTED") {
		all.add("the session's isolation level is READ UNCOMMITTED: reads show leaders whose writes are then undone", "leave the level at the server's default, or set READ COMMITTED")
	}
	if s.is("wsrep_on", "ON") {
		all.galera(s)
	} else {
		all.replication(s)
	}
	return all, nil
}

type warnings []durability.Warning

func (w *warnings) add(detail, advice string) {
	*w = append(*w, durability.Warning{Detail: detail, Advice: advice})
}

// galera says what may lose a write of a cluster.
func (w *warnings) galera(s settings) {
	if !s.is("wsrep_cluster_status", "Primary") {
		w.add("wsrep_cluster_status is "+s.first("wsrep_cluster_status")+": this node has no quorum, and takes no writes", "connect to a node of the primary component")
	}
	options := strings.ReplaceAll(strings.ToLower(s.first("wsrep_provider_options")), " ", "")
	for _, o := range []string{"pc.ignore_sb=true", "pc.ignore_quorum=true", "pc.ignore_sb=1", "pc.ignore_quorum=1", "pc.ignore_sb=yes", "pc.ignore_quorum=yes"} {
		if strings.Contains(options, o+";") {
			w.add("wsrep_provider_options has "+o+": both halves of a cluster that is split take writes, and two lead", "set it to false")
		}
	}
	if s.first("wsrep_cluster_size") == "1" {
		w.add("the Galera cluster has one node: while it is gone nobody leads, and writes that are not on its disk are lost", "use three nodes, or more")
	}
}

// replication says what a fail-over may lose.
func (w *warnings) replication(s settings) {
	enabled := s.is("rpl_semi_sync_master_enabled", "ON") || s.is("rpl_semi_sync_source_enabled", "ON")
	timeout := s.first("rpl_semi_sync_master_timeout", "rpl_semi_sync_source_timeout")
	ms, _ := strconv.ParseUint(timeout, 10, 64)
	replicas := s.first("Slaves_connected", "Replicas_connected")
	const promote = "; or let a term pass before a new primary serves, and make sure that the old primary does not serve any longer"
	switch {
	case enabled && (s.is("Rpl_semi_sync_master_status", "OFF") || s.is("Rpl_semi_sync_source_status", "OFF")):
		w.add("semi-synchronous replication has given up waiting: the server confirms writes that no replica has. A fail-over forgets them, and two may lead",
			"bring the replicas back, and set the timeout so that it never comes (rpl_semi_sync_master_timeout=4294967295)"+promote)
	case enabled && ms < neverAlone:
		w.add(fmt.Sprintf("semi-synchronous replication waits for only %s ms, and then the server confirms writes that no replica has. A fail-over forgets them, and two may lead", timeout),
			"set the timeout so that it never comes (rpl_semi_sync_master_timeout=4294967295): then nobody leads while no replica answers"+promote)
	case !enabled && s.is("log_bin", "ON") && replicas != "" && replicas != "0":
		w.add("replication to "+replicas+" replicas is asynchronous: a fail-over to one that lags forgets a confirmed write, and two may lead",
			"set rpl_semi_sync_master_enabled=ON with rpl_semi_sync_master_timeout=4294967295, and rpl_semi_sync_slave_enabled=ON at the replicas"+promote)
	}
}

// settings are a server's variables and status, by their names in lower case.
type settings map[string]string

func (s settings) ask(ctx context.Context, db *sql.DB, query string) error {
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
		s[strings.ToLower(name)] = value
	}
	return rows.Err()
}

// first is the value of the first of these that the server has.
func (s settings) first(names ...string) string {
	for _, name := range names {
		if v, has := s[strings.ToLower(name)]; has {
			return v
		}
	}
	return ""
}

func (s settings) is(name string, values ...string) bool {
	for _, v := range values {
		if strings.EqualFold(s.first(name), v) {
			return true
		}
	}
	return false
}
