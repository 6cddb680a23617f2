// Package sql keeps an election in an SQL database by database/sql, as one row of a
// table: MySQL and MariaDB, SQLite for the processes of one machine, and others by a
// Dialect. One conditional statement decides who leads. (PostgreSQL has a package of its
// own, which pushes: deciders/postgres.)
//
//	import lesql "github.com/c8e606e4/leaderelection/deciders/sql"
//
//	db, err := mysql.NewDB(config) // deciders/sql/mysql; or sqlite.NewDB, or a pool of yours
//	...
//	decider := lesql.NewDecider(db, mysql.Dialect(), "leaderelection", "web", &lesql.Options{CreateTable: true})
//
// This package links no driver. deciders/sql/mysql links github.com/go-sql-driver/mysql, and
// deciders/sql/sqlite modernc.org/sqlite; each is a module of its own, and opens an election
// by URL.
//
// # What is written where
//
// One row a table and election: its name, a version that is never the same twice (even
// when the row was deleted and made again, or a backup put back), the time of the write in
// microseconds since 1970, and the record. Dialect.Schema prints the table for those who
// migrate by hand; Options.CreateTable makes it if it is missing. In MySQL it is
//
//	CREATE TABLE leaderelection (
//		election VARBINARY(255) NOT NULL PRIMARY KEY,
//		version VARBINARY(64) NOT NULL,
//		written BIGINT NOT NULL,
//		record MEDIUMBLOB NOT NULL
//	) ENGINE=InnoDB;
//
// whose columns have no collation, since the usual ones take "web", "Web" and "web " for
// one, and no character set. In SQLite the types are TEXT, TEXT, INTEGER and TEXT. To look:
//
//	SELECT CONVERT(election USING utf8mb4), FROM_UNIXTIME(written / 1e6), CONVERT(record USING utf8mb4) FROM leaderelection;
//	SELECT election, datetime(written / 1e6, 'unixepoch'), record ->> 'leader_id' FROM leaderelection; -- SQLite
//
// A row that is not our record is reported, and left alone. Nothing ever deletes a row;
// an operator who does makes the election empty, and two may lead for a term.
//
// # How a write decides
//
//	UPDATE leaderelection SET version = ?, written = ..., record = ? WHERE election = ? AND version = ?
//
// It is one statement that commits by itself, and the number of rows tells who has won.
// The version always changes, so it does not matter whether the driver counts the rows that
// were found or those that were changed (clientFoundRows). In MySQL the answer also bears
// the server's time (LAST_INSERT_ID), and an answer that does not is not taken for one.
//
// A write within an open transaction would be confirmed, and might be rolled back later. So
// in MySQL the statement also asks that autocommit is on, in MariaDB that no transaction is
// open, and that a binary log does not hold statements (binlog_format=STATEMENT), which a
// replica would judge again. Else it writes nothing, and the error says so.
//
// No call retries. When a ctx ends, the connection is closed (MySQL), or the statement is
// interrupted (SQLite), and whether a write has happened, or will, is not known: read. A
// record of its own that a handle reads while a write of its has not been answered it makes
// sure of first, by an UPDATE of written, which waits for whoever has the row's lock and for
// what every write waits for. So neither READ UNCOMMITTED nor a semi-synchronous primary that
// shows a write before its replica has it (AFTER_COMMIT, MariaDB's default) lets a
// candidate take for confirmed what may yet be lost.
//
// Reads are plain SELECTs outside of transactions, so each sees what is committed on its
// server, at any isolation level above READ UNCOMMITTED. On a replica, or another node of a
// Galera cluster, they may be stale, which costs time and not safety: connect candidates to
// the primary.
//
// # What can lose a confirmed write
//
// Then two may lead for up to a term, or a number may come twice. The command leaderelect
// doctor asks the server for these settings, see Decider.Durability.
//
// MySQL and MariaDB:
//
//   - innodb_flush_log_at_trx_commit other than 1, and with a binary log sync_binlog other
//     than 1, which is MariaDB's default: a crash of the machine;
//   - a table of another engine than InnoDB or MyRocks, which is refused;
//   - a fail-over to a replica that had not received it. Replication is asynchronous unless
//     it is semi-synchronous, and that goes on asynchronously after its timeout (10 s by
//     default). So set the timeout so that it never comes
//     (rpl_semi_sync_master_timeout=4294967295): while no replica answers, nobody can extend a
//     term, so nobody leads. Or let a term pass before the new primary serves. In any case
//     see to it that the old one does not serve any longer;
//   - KILL, on a session that waits for a replica's acknowledgement: MySQL answers as if it
//     had come;
//   - Galera confirms a write when every node has received it, so one node may crash. Of two
//     writes on two nodes one fails in certification (1213), and a node without a quorum
//     refuses all (1047). Not with pc.ignore_sb or pc.ignore_quorum, nor if all nodes
//     crash at once with innodb_flush_log_at_trx_commit other than 1;
//   - a restored backup.
//
// SQLite next to another SQLite library, or next to code that opens the database's files: the
// kernel drops all locks that a process has on a file when any code of it closes that file, and
// SQLite does not notice. So do not open the files otherwise, not to copy them either (use
// VACUUM INTO). In one process let all use one pool of deciders/sql/sqlite, or give the pool
// of your own driver to NewDecider with the Dialect SQLite. Each write takes a lock of its own
// (the file with the suffix -leaderelection.lock), so that one candidate wins even then; the
// application's own tables are not protected. On Linux a pool of deciders/sql/sqlite refuses to
// write while something else of the process has the files open.
//
// SQLite: a connection with PRAGMA synchronous less than FULL in WAL mode, or than EXTRA in
// DELETE mode, when the power fails. The driver's own default is FULL; pools of
// deciders/sql/sqlite set EXTRA. All candidates must be on one machine, with the file on a
// local disk: locks of network file systems are not to be trusted, and WAL mode does not work
// between machines at all (https://www.sqlite.org/wal.html). Nobody may move, replace or
// remove the file while a candidate runs, nor its -wal and -shm files, nor the lock file. Pools of
// deciders/sql/sqlite look before each use, and after each write, whether their files are still
// those at their paths, and go on with those that are: what was confirmed in the old one is lost. Other pools in
// WAL mode go on with the old one, and two lead. All must reach the file by one path, in
// one directory: mount the directory into containers, not the file. A database in memory is
// refused.
//
// # Clocks
//
// CommitTS is the server's UTC_TIMESTAMP(6) in MySQL, when the statement began. SQLite's is
// the machine's own clock in milliseconds, and a write's answer has none. All candidates of a
// SQLite database share a clock: set the ClockPolicy to SharedClock.
//
// # Permissions
//
//	GRANT SELECT, INSERT, UPDATE ON app.leaderelection TO candidate;
//	GRANT SELECT ON app.leaderelection TO observer;
//
// With Options.CreateTable also CREATE, while the table is missing. In SQLite candidates
// write the file and its directory.
//
// # What it costs
//
// An extension is one statement, about twice a term (515 an hour at 15 s), and a look is one
// as well. Each is one round trip if the driver puts the parameters into the statement
// (InterpolateParams, as mysql.NewDB sets it), else two. These databases do not push:
// a standby looks every half term, 480 times an hour, and a hand-over takes up to
// PollInterval. deciders/hinted adds a push from elsewhere. In SQLite a write is one
// fsync in WAL mode, and three or four in the others. A first use looks at the table, by one
// statement in MySQL and three in SQLite.
//
// To give up a call does not end it at a MySQL server: a statement that waits for a row's lock
// or for a replica keeps its session. So while two such statements are running, which
// information_schema.processlist tells by a mark in their text, no more are begun, and the error
// says what they wait for.
//
// Give an election a pool of its own: an application that uses up a shared one costs the
// leadership. The error then says that a connection was waited for.
//
// One connection is mostly enough; give the pool two at least, or a statement that hangs
// keeps the next one waiting. Let no more than one be idle (SetMaxIdleConns): of several that
// die without a word, each costs a call. Give connections a bound for their making (Timeout), and
// a lifetime (SetConnMaxLifetime), so that a fail-over by DNS is followed. mysql.NewDB does all
// that.
//
// # A fence
//
// fence/fencesql refuses a deposed leader's transactions in the same kinds of databases.
package sql
