// Package postgres keeps an election in PostgreSQL, as one row of a table. One conditional
// statement decides who leads and notifies the others: candidates and observers learn of every
// change within about a millisecond.
//
//	config, err := pgxpool.ParseConfig("postgres://app@db/app")
//	...
//	postgres.Prepare(config)
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//	...
//	decider := postgres.NewDecider(pool, "leaderelection", "web", &postgres.Options{CreateTable: true})
//
// ParseConfig reads the password file, the service file and certificates once. If yours are
// renewed, set config.BeforeConnect to a function that reads them again. Open does so.
//
// # What is written where
//
// The table has one row per election:
//
//   - the election's name;
//   - a version that is never the same twice, even if the row is deleted and made again, or a
//     backup restored;
//   - the time of the write;
//   - the record, in a column of type json, which keeps it byte for byte;
//   - the channel of its notifications.
//
// psql shows it:
//
//	select election, written, record->>'leader_id' from leaderelection;
//
// Schema prints the table, for your migrations. Options.CreateTable makes it if it is missing.
// search_path decides once which schema has the table, and String names that schema. Candidates
// with another search_path may find another table, and elect another leader (leaderelect doctor
// warns of it). If in doubt, name the schema.
//
// A row changes in place about 515 times an hour. Autovacuum and the table's fillfactor can handle
// that. Never delete a row: the election is then empty, and two may lead for a term.
//
// # Permissions
//
//	grant select, insert, update on leaderelection to candidate;
//	grant select on leaderelection to observer;
//
// Options.CreateTable also needs CREATE on the schema, while the table is missing.
//
// LISTEN and NOTIFY need no permission at all: "notifications are visible to all users" of a
// database (https://www.postgresql.org/docs/current/sql-notify.html). So the name of a row's
// channel cannot be guessed, and only users who may read the row learn it. Other users of the
// database can neither read nor forge news. They can make followers read in vain.
//
// # What PostgreSQL promises
//
// If an UPDATE finds its row changed by another transaction, it waits for the end of that
// transaction and checks its condition again
// (https://www.postgresql.org/docs/current/transaction-iso.html). So of two writes conditional on
// one version one wins. With a default isolation level above READ COMMITTED the other fails with
// 40001. It then reads, and has lost the race if there is another version. A confirmed write is in
// the write-ahead log on disk (https://www.postgresql.org/docs/current/wal-reliability.html).
//
// If a confirmed write is lost, two may lead for up to a term. The command leaderelect doctor asks
// the server for these causes, see Decider.Durability:
//
//   - fsync=off, and disks that lie about their caches
//     (https://www.postgresql.org/docs/current/runtime-config-wal.html).
//   - A fail-over to a standby that does not have the write. Replication is asynchronous unless
//     synchronous_standby_names says otherwise
//     (https://www.postgresql.org/docs/current/warm-standby.html). With FIRST 2 (a, b) each write
//     is on both, and either may be promoted. With ANY 1 (a, b), FIRST 1 (a, b) or * a write is on
//     one of them, and a fail-over must promote the more advanced. Or let a term pass before the
//     new primary serves. In any case the old primary must not serve any longer.
//   - A restored backup, which is like such a fail-over.
//   - An UNLOGGED table, which a crash empties
//     (https://www.postgresql.org/docs/current/sql-createtable.html). A Decider refuses it.
//
// A session's synchronous_commit of off, local or remote_write does no harm: a write raises it to
// on for itself.
//
// # Synchronous standbys
//
// With synchronous_standby_names a write is answered, and visible to others, when as many standbys
// have it as must answer. While fewer are there nobody can extend a term, so nobody leads. If more
// standbys are named than must answer (ANY 1 (a, b)), leadership stays available, but the fail-over
// must promote the right one.
//
// The wait for standbys may be cut short: by pgx when a ctx ends, by pg_cancel_backend, or by a
// termination or a crash of the primary. The write is then on the primary alone, for all to see.
// The feed and an observer's read may show such a record. A candidate must not take it for
// confirmed:
//
//   - While a write of this candidate has no response yet, ReadCurrent makes sure first, by an
//     UPDATE that changes nothing and waits as any write does.
//   - PostgreSQL reports pg_cancel_backend only by a warning. So each write makes the server send a
//     notice as well, whatever the role's client_min_messages is. If commits wait for standbys and
//     the notice does not arrive, the write does not count, and the error says so. This happens
//     with a pool without Prepare, and behind a proxy that drops notices. Open's pool is prepared.
//
// # What it costs
//
// An extension is one statement in one round trip, and so is a look. Standbys and observers ask
// nothing while the leader extends its term: the notifications bring the records. A standby without
// a feed reads 480 times an hour. NOTIFY takes a lock of the whole server at commit. This matters
// only with thousands of notifications a second.
//
// Give an election a pool of its own. An application that uses up a shared pool costs the
// leadership, and the error says that the call waited for a connection. Let the pool have two
// connections at least: a statement that hangs would make the next one wait.
//
// The feeds of all Deciders that share a pool listen on one connection outside of the pool.
// Everything else uses the pool's connections, each for one statement. So a process has two or
// three connections to the server for one election. For a hundred elections by one pool it has one,
// and those that the pool may open. Two cases need more connections:
//
//   - Deciders of Open have a pool each, so two connections each. (Those of a group that the
//     command leaderelect runs share one pool.)
//   - With Options.Listen each Decider's feed has a connection of its own.
//
// A pgxpool tests a connection that was idle for a second before it lends it. This makes one round
// trip two. pgxpool.Config.ShouldPing can change it. Set pgxpool.Config.ConnConfig.ConnectTimeout
// to some seconds: it has no limit otherwise, and a connection that is being made counts against
// MaxConns. Open does both.
//
// CommitTS is the server's clock_timestamp(), in microseconds.
//
// # How the feed works
//
// It listens (LISTEN), and then reads the row once, so that it misses nothing. If a record is
// longer than a notification can be (8000 bytes), it reads the row. After a silence of
// Options.FeedSilence it asks the server on the connection that listens, and reads the row as well.
// If the connection breaks, the feed fails, and candidates poll and start it again. Nothing
// notifies of other changes of the row (a DELETE, an UPDATE by hand).
//
// # Fail-over
//
// If the server says that it takes no writes (25006: a hot standby, or
// default_transaction_read_only), the connection leaves the pool, even a pool of yours. The next
// call makes a new connection, and reaches the new primary behind the same name or address. A call
// that is given up closes its connection. In a pool that Open made it also closes all idle
// connections, which may have died silently together. In a pool of yours each dead connection costs
// one call.
//
// # Behind a transaction pooler
//
// Reads and writes use unnamed statements and no session state, so they work through PgBouncer in
// transaction mode. For a pooler without the extended protocol, set
// pgx.ConnConfig.DefaultQueryExecMode to QueryExecModeSimpleProtocol
// (default_query_exec_mode=simple_protocol).
//
// LISTEN does not work there (https://www.pgbouncer.org/features.html): notifications go to the
// client that has the session at the time. The feed detects it: it notifies itself through the
// pool, hears nothing within two seconds, and fails once. Then candidates poll. Give Options.Listen
// a direct connection, or skip the attempt by Options.NoListen.
package postgres
