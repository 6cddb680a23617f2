// Package sql keeps an election in an SQL database by database/sql, as one row of a table. It works
// with MySQL and MariaDB, with SQLite for the processes of one machine, and with other databases by
// a Dialect. One conditional statement decides who leads. (PostgreSQL has a package of its own,
// which pushes: deciders/postgres.)
//
//	import lesql "github.com/c8e606e4/leaderelection/deciders/sql"
//
//	db, err := mysql.NewDB(config) // deciders/sql/mysql; or sqlite.NewDB, or a pool of yours
//	...
//	decider := lesql.NewDecider(db, mysql.Dialect(), "leaderelection", "web", &lesql.Options{CreateTable: true})
//
// This package links no driver. deciders/sql/mysql links github.com/go-sql-driver/mysql, and
// deciders/sql/sqlite links modernc.org/sqlite. Each is a module of its own, and opens an election
// by URL.
//
// # What is written where
//
// The table has one row per election:
//
//   - the election's name;
//   - a version that is never the same twice, even if the row is deleted and made again, or a
//     backup restored;
//   - the time of the write, in microseconds since 1970;
//   - the record.
//
// Dialect.Schema prints the table, for your migrations. Options.CreateTable makes it if it is
// missing. In MySQL it is
//
//	CREATE TABLE leaderelection (
//		election VARBINARY(255) NOT NULL PRIMARY KEY,
//		version VARBINARY(64) NOT NULL,
//		written BIGINT NOT NULL,
//		record MEDIUMBLOB NOT NULL
//	) ENGINE=InnoDB;
//
// The columns have no character set and no collation, since the usual ones take "web", "Web" and
// "web " for one name. In SQLite the types are TEXT, TEXT, INTEGER and TEXT. To look:
//
//	SELECT CONVERT(election USING utf8mb4), FROM_UNIXTIME(written / 1e6), CONVERT(record USING utf8mb4) FROM leaderelection;
//	SELECT election, datetime(written / 1e6, 'unixepoch'), record ->> 'leader_id' FROM leaderelection; -- SQLite
//
// A row that is not our record is reported, and left alone. Never delete a row: the election is
// then empty, and two may lead for a term.
//
// # How a write decides
//
//	UPDATE leaderelection SET version = ?, written = ..., record = ? WHERE election = ? AND version = ?
//
// It is one statement that commits by itself, and the number of rows says who has won. The version
// always changes, so it does not matter whether the driver counts the rows that were found or those
// that were changed (clientFoundRows). In MySQL the response also has the server's time
// (LAST_INSERT_ID). Without it the response does not count.
//
// Within an open transaction, a write could be confirmed and rolled back later. With a binary log
// of statements (binlog_format=STATEMENT), a replica would decide again. So the statement demands
// that autocommit is on, that no transaction is open (MariaDB only), and that a binary log does not
// hold statements. Otherwise it writes nothing, and the error says so.
//
// No call retries. When a ctx ends, the connection is closed (MySQL), or the statement is
// interrupted (SQLite). Whether a write has happened, or will, is then not known: read.
//
// If a handle reads a record of its own while one of its writes has no response yet, it first makes
// sure of the record. It does so by an UPDATE of written, which waits for the row's lock and for
// whatever every write waits for. So a candidate does not take for confirmed what may yet be lost:
// neither with READ UNCOMMITTED, nor with a semi-synchronous primary that shows a write before its
// replica has it (AFTER_COMMIT, MariaDB's default).
//
// Reads are plain SELECTs outside of transactions, so each sees what is committed on its server, at
// any isolation level above READ UNCOMMITTED. On a replica, or another node of a Galera cluster,
// they may be stale. This costs time and not safety: connect candidates to the primary.
//
// # What can lose a confirmed write
//
// If a confirmed write is lost, two may lead for up to a term, or a number may come twice. The
// command leaderelect doctor asks the server for these settings, see Decider.Durability.
//
// MySQL and MariaDB:
//
//   - A crash of the machine, with innodb_flush_log_at_trx_commit other than 1. With a binary log
//     also with sync_binlog other than 1, which is MariaDB's default.
//   - A table of an engine other than InnoDB or MyRocks. It is refused.
//   - A fail-over to a replica that does not have the write. Replication is asynchronous unless it
//     is semi-synchronous, and then it becomes asynchronous after its timeout (10 s by default). So
//     set the timeout so that it never comes (rpl_semi_sync_master_timeout=4294967295): while no
//     replica answers, nobody can extend a term, so nobody leads. Or let a term pass before the new
//     primary serves. In any case the old primary must not serve any longer.
//   - KILL, on a session that waits for a replica's acknowledgment: MySQL answers as if the
//     acknowledgment had come.
//   - Galera, with pc.ignore_sb or pc.ignore_quorum, or if all nodes crash at once with
//     innodb_flush_log_at_trx_commit other than 1. Otherwise one node may crash, since every node
//     has received a confirmed write. Of two writes on two nodes one fails in certification (1213),
//     and a node without a quorum refuses all (1047).
//   - A restored backup.
//
// SQLite, other code that opens the files: when any code of a process closes one of the database's
// files, the kernel drops all locks that the process has on it. SQLite does not notice. So do not
// open the files otherwise, even to copy them (use VACUUM INTO). Use one pool of
// deciders/sql/sqlite for everything in the process, or give the pool of your own driver to
// NewDecider with the Dialect SQLite. Each write also takes a lock of its own (the file with the
// suffix -leaderelection.lock), so that one candidate wins even then, as nobody undoes what another
// writes in WAL mode. In other modes who reads meanwhile would, so an election refuses those. Only who may write the database
// may open that file. It does not protect your application's own tables. On Linux a pool of deciders/sql/sqlite refuses to write while something
// else in the process has the files open.
//
// SQLite, loss of power: a connection with PRAGMA synchronous less than FULL, which is the driver's default.
//
// SQLite, files on the network: all candidates must be on one machine, with the file on a local
// disk. WAL mode does not work between machines (https://www.sqlite.org/wal.html).
//
// SQLite, files that change: do not move, replace or remove the file, its -wal and -shm files, or
// the lock file while a candidate runs. Pools of deciders/sql/sqlite look before each use, and
// after each write, whether the files at their paths are still the same. If not, they go on with
// the new files, and what was confirmed in the old ones is lost. Other pools go on with
// the old files, and two lead. All candidates must reach the file by one path, in one directory:
// mount the directory into containers, not the file. A database in memory is refused.
//
// # Clocks
//
// In MySQL, CommitTS is the server's UTC_TIMESTAMP(6) when the statement began. In SQLite it is the
// machine's own clock in milliseconds, and the response to a write has none. All candidates of a
// SQLite database share a clock: set the ClockPolicy to SharedClock.
//
// # Permissions
//
//	GRANT SELECT, INSERT, UPDATE ON app.leaderelection TO candidate;
//	GRANT SELECT ON app.leaderelection TO observer;
//
// Options.CreateTable also needs CREATE, while the table is missing. In SQLite candidates must be
// able to write the file and its directory.
//
// # What it costs
//
// An extension is one statement, about twice a term (515 an hour at 15 s). A look is one as well.
// Each is one round trip if the driver puts the parameters into the statement (InterpolateParams,
// as mysql.NewDB sets it), otherwise two. In SQLite a write is one fsync.
// A first use looks at the table, by one statement in MySQL and three in
// SQLite.
//
// These databases do not push: a standby looks every half term, 480 times an hour, and a hand-over
// takes up to PollInterval. deciders/hinted adds a push from elsewhere.
//
// A MySQL server does not stop a statement because a call gives up: a statement that waits for a
// row's lock or for a replica keeps its session. So while two such statements run, no more are
// begun, and the error says what they wait for. A mark in their text makes them visible in
// information_schema.processlist.
//
// Give an election a pool of its own. An application that uses up a shared pool costs the
// leadership, and the error says that the call waited for a connection. Settings for the pool, all
// of which mysql.NewDB makes:
//
//   - at least two connections. One is mostly enough, but a statement that hangs would make the
//     next one wait;
//   - at most one idle connection (SetMaxIdleConns): if several die silently, each costs a call;
//   - a limit for making a connection (Timeout);
//   - a lifetime (SetConnMaxLifetime), so that a fail-over by DNS is followed.
//
// # A fence
//
// fence/fencesql refuses a deposed leader's transactions in the same kinds of databases.
package sql
