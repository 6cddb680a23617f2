package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

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
