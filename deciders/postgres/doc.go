// Package postgres keeps an election in PostgreSQL, as one row of a table. One
// conditional statement decides who leads and notifies the others: candidates and
// observers learn of every change within about a millisecond.
//
//	config, err := pgxpool.ParseConfig("postgres://app@db/app")
//	...
//	postgres.Prepare(config)
//	pool, err := pgxpool.NewWithConfig(ctx, config)
//	...
//	decider := postgres.NewDecider(pool, "leaderelection", "web", &postgres.Options{CreateTable: true})
//
// ParseConfig reads the password file, the service file and certificates once. If yours are renewed, set
// config.BeforeConnect to a function that reads them again. Open does so.
//
// # What is written where
//
// One row a table and election: its name, a version that is never the same twice
// (even when the row was deleted and made again, or a backup put back), the time of
// the write, the record, and the channel of its notifications. The record's column
// is json, which keeps it byte for byte, and not jsonb, which rewrites it; psql
// shows it and takes it apart:
//
//	select election, written, record->>'leader_id' from leaderelection;
//
// Schema prints the table for those who migrate by hand; Options.CreateTable makes
// it if it is missing. The name is looked up by search_path once, and String names the
// schema that was found: candidates with another search_path may find another table, and elect
// another leader (leaderelect doctor warns of it). Name the schema if in doubt. A row changes in place about 515 times an hour: autovacuum
// deals with that, and the table's fillfactor lets it. Nothing ever deletes a row; an
// operator who does makes the election empty, and two may lead for a term.
//
// # Permissions
//
//	grant select, insert, update on leaderelection to candidate;
//	grant select on leaderelection to observer;
//
// With Options.CreateTable also CREATE on the schema, while the table is missing.
//
// LISTEN and NOTIFY need no permission at all: "notifications are visible to all
// users" of a database (https://www.postgresql.org/docs/current/sql-notify.html).
// So a row's notifications go to a channel with a name that cannot be guessed, which
// only those learn who may read the row: others of the database can neither read
// along nor forge news. They can make followers read in vain.
//
// # What PostgreSQL promises
//
// An UPDATE that finds its row changed by another waits for that one's end, and looks
// again at whether its condition still holds
// (https://www.postgresql.org/docs/current/transaction-iso.html), so of two writes
// conditional on one version one wins. With a default isolation level above READ
// COMMITTED the other fails with 40001; it then reads, and has lost the race if
// there is another version. An answered write is in the write-ahead log on disk
// (https://www.postgresql.org/docs/current/wal-reliability.html).
//
// What can lose one, so that two may lead for up to a term (the command leaderelect
// doctor asks the server for these settings, see Decider.Durability):
//
//   - fsync=off, and disks that lie about their caches
//     (https://www.postgresql.org/docs/current/runtime-config-wal.html);
//   - a fail-over to a standby that had not received it: replication is asynchronous
//     unless synchronous_standby_names says otherwise
//     (https://www.postgresql.org/docs/current/warm-standby.html). With
//     FIRST 2 (a, b) each write is on both, and either may be promoted. With ANY 1 (a, b),
//     FIRST 1 (a, b) or * a write is on one of them: a fail-over must then promote the
//     more advanced of the two. Or let a term pass before the new primary serves. In any
//     case see to it that the old one does not serve any longer. A restored backup is the
//     same;
//   - an UNLOGGED table, which a crash empties
//     (https://www.postgresql.org/docs/current/sql-createtable.html): it is refused,
//     when a Decider first looks.
//
// A session's synchronous_commit of off, local or remote_write does no harm: a write
// raises it to on for itself.
//
// A wait for a standby may be cancelled (pg_cancel_backend), which PostgreSQL tells by a
// warning alone. So each write has the server say a notice as well, whatever the role's
// client_min_messages is. If commits wait for standbys and the notice is not heard, the write
// is not believed, and the error says so: on a pool without Prepare, and behind a proxy
// that drops notices. Open's pool is prepared.
//
// With synchronous_standby_names a write is answered, and seen by others, when as many
// standbys as must answer have it. While fewer do nobody can extend a term, so nobody
// leads. More standbys than must answer (ANY 1 (a, b)) keep leadership available, and make
// it the fail-over's business which of them it promotes. A wait that is cut short leaves the
// write on the primary alone, for all to see: pgx has the server cancel when a ctx
// ends, and a termination or a crash of the primary does the same. A candidate that
// reads such a record of its own must not take it for confirmed. So ReadCurrent makes
// sure first, by an UPDATE that changes nothing and waits as any write does. It does so
// only while a write of that candidate has not been answered.
//
// The feed tells of what is committed on the primary: after a wait that was cut short
// that may be a record that no standby has. So may a read of an observer.
//
// # What it costs
//
// An extension is one statement in one round trip, as is a look. Standbys and
// observers ask nothing while the leader extends its term: the notifications bring the
// records. A standby without a feed reads 480 times an hour. NOTIFY is done under a lock
// of the whole server at commit, which matters where thousands a second notify, not here.
//
// Give an election a pool of its own: an application that uses up a shared one costs the
// leadership. The error then says that a connection was waited for.
//
// The feeds of all Deciders that share a pool listen on one connection, beside the pool.
// All else is done on the pool's, each for the time of one statement. So a process that
// takes part in one election has two connections to the server or three, and one that
// takes part in a hundred by one pool has one and those that the pool may open. Give the
// pool two at least, or a statement that hangs keeps the next one waiting. Deciders of
// Open's have a pool each, and so have two connections each, but for those of a group that the
// command leaderelect runs, which share one; of Deciders with Options.Listen each feed's handle has a
// connection of its own.
//
// A pgxpool tries out a connection that was idle for a second before it lends it,
// which makes two round trips of one; pgxpool.Config.ShouldPing says when. Give
// pgxpool.Config.ConnConfig.ConnectTimeout some seconds, since it has no bound
// otherwise, and a connection that is being made counts against MaxConns. Open does
// both.
//
// CommitTS is the server's clock_timestamp(), in microseconds.
//
// # How the feed works
//
// It listens (LISTEN), and then reads the row once, so that nothing falls between. A record longer than what a notification carries (8000
// bytes) is read instead. After a silence of Options.FeedSilence it reads, too, to
// see whether the server is there, having asked it on the connection that listens. When the connection breaks, the feed fails,
// candidates poll, and take it up again. What happens to the row by other means (a
// DELETE, an UPDATE by hand) is not notified.
//
// # Fail-over
//
// A connection on which the server says that it takes no writes (25006: a hot standby, or
// default_transaction_read_only) leaves the pool, also yours. The next call makes a new one, and
// reaches the new primary behind a name or an address that stays. A call that is given up closes
// its connection as well, and all idle connections of a pool that Open made: they may have died
// together, without a word. In a pool of yours each dead connection costs one call.
//
// # Behind a transaction pooler
//
// Reads and writes use unnamed statements and no session state, so they work through
// PgBouncer in transaction mode; for a pooler that knows no extended protocol set
// pgx.ConnConfig.DefaultQueryExecMode to QueryExecModeSimpleProtocol
// (default_query_exec_mode=simple_protocol). LISTEN does not work there
// (https://www.pgbouncer.org/features.html): the notifications go to whoever has the
// session. The feed finds that out: it notifies itself through the pool, hears
// nothing within two seconds, and fails once, whereupon candidates poll.
// Options.Listen gives it a direct connection, and Options.NoListen spares the
// attempt.
package postgres
