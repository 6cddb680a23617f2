// Package redis keeps an election in Redis (or Valkey), as one key. A Lua script
// decides who leads, and publishes the record: candidates and observers learn of
// every change within about a millisecond.
//
//	client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379", MaxRetries: -1, ContextTimeoutEnabled: true})
//	decider := redis.NewDecider(client, "election:web", nil)
//
// Any UniversalClient will do: a Client, a fail-over Client that finds its master
// by Sentinel, a ClusterClient. One key is one slot, so Cluster needs nothing
// special.
//
// # What is written where
//
// A hash with two fields: "record", the record as JSON, and "version", which the
// server's clock and a random number make unlike every version before, also after
// the key was deleted, after FLUSHALL and on another server. HGETALL shows both.
// The key never expires, and a write takes away an expiry that somebody has set.
// Nothing deletes it; an operator who does makes the election empty, and two may lead for
// a term: nothing shows that there was a record. A hash without a version, or with a record
// of no bytes, is damage, and left alone. Each write publishes version and record on a
// channel, by
// default "leaderelection:" and the key.
//
// # What Redis can lose
//
// A script runs alone, so of two writes conditional on one version one wins. What
// Redis does not promise is to remember: it answers before the write is on disk,
// and before a replica has it. A write that was answered and is then forgotten
// leaves a leader with a view that the others know nothing of, so that two may
// lead for up to a term. The command leaderelect doctor asks the server which of
// these its settings allow (Decider.Durability):
//
//   - a server that is restarted without having saved: with appendonly no, or
//     with appendfsync everysec (up to a second of writes; more under load). Set
//     appendonly yes and appendfsync always, or keep a server that has lost its
//     data away from clients for a term;
//   - a fail-over (by Sentinel, by Cluster, or of a managed service) to a replica
//     that lagged behind, and a master that a partition has cut off, and that
//     goes on answering until it is told. Options.WaitReplicas makes a write
//     count only when that many replicas have it (WAIT). Set it to the number of
//     replicas: then whichever of them is promoted has every write that counted.
//     The price is that nobody leads while one of them is away, until it is back or
//     replaced (22 s in a fail-over of three servers). With one less, somebody leads
//     again sooner (4.3 s), and the promise is gone: the replica that lacks the write
//     may be the one that is promoted
//     (https://redis.io/docs/latest/commands/wait/). In an hour of failures by design,
//     with two replicas and a wait for one of them, 1 of 373 tokens was given out
//     twice; with a wait for both none was (RELIABILITY.md). To survive the
//     loss of a replica without a pause, take a store with a quorum.
//     In the server's configuration min-replicas-to-write
//     (with min-replicas-max-lag) makes a master that is cut off from its
//     replicas refuse writes after some seconds: set it as well;
//   - maxmemory with an eviction policy that may take keys without an expiry
//     (allkeys-*): use noeviction or volatile-*.
//
// A write is seen by all from the moment that the script has run, and WAIT only asks
// who else has it: giving up a call, or its WAIT, changes nothing in what Redis shows.
// What this handle wrote, and what Transfer or StepDown wrote over it, is therefore
// not believed when it is read, lost to, or pushed, until WAIT says so: each time
// until then a read costs a write (HSET of the version over itself) and a WAIT.
//
// A single server with appendfsync always keeps what it says. For what must never
// have two leaders, prefer a store with a quorum, or fence the resource itself by
// the election number (see the package fence).
//
// # Several independent masters
//
// Redlock, which redsync has too, asks several masters that know nothing of each other,
// and takes a majority of yes for a lock. This package does not, for three reasons.
//
//   - A record needs one conditional write, and a majority of masters has none. Two
//     candidates may each win some of them, so that no version has a majority. A write
//     that reached one master of three was neither made nor not made: which of the two
//     a later reader sees depends on whom it asks. To finish such writes safely takes a
//     second round, and a number that is promised before: a consensus protocol.
//   - A master that restarts without its last writes, as with appendfsync everysec,
//     votes a second time. Of three masters A, B and C one candidate has A and B; B
//     forgets; the next has B and C. Redis' own text asks to keep such a master away for
//     longer than any lock lasts (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
//   - Its locks have a random value, and no number that grows: nothing for a fence.
//
// What it is wanted for, that the loss of one server stops nobody, Options.WaitReplicas
// gives with Sentinel or a Cluster, within the limits above; and a store that does have
// a consensus protocol, such as etcd, NATS or ZooKeeper, without them.
//
// # Permissions
//
// Redis 5 or later (scripts that ask for the time before they write), or any
// Valkey. Candidates, and observers without the last four commands:
//
//	ACL SETUSER candidate on >secret ~election:web &leaderelection:election:web \
//	    +eval +hmget +exists +subscribe +unsubscribe +ping +time +hset +persist +publish
//
// With Options.WaitReplicas also +wait, in a Cluster also +cluster, in a database
// other than 0 also +select. Optional, and for leaderelect doctor alone: +info and
// +config|get, by which it examines what Redis can lose.
//
// # What it costs
//
// An extension is one EVAL (some 1.2 KB), about 515 an hour at the default term
// of 15 s; with WaitReplicas a WAIT goes along in the same round trip. Standbys
// and observers hold one connection each, and ask nothing while the leader
// extends its term: the messages bring the records. A standby without a feed reads
// 480 times an hour. A process that takes part in many elections gives them one
// Options.Feeds: then all their feeds share one connection.
//
// CommitTS is the server's clock, in microseconds.
//
// # How the feed works
//
// It subscribes, and then reads the record once, so that nothing falls between.
// After a silence of Options.FeedSilence it asks on its connection whether the
// server is there (PING). When the connection breaks, or no answer comes, the
// feed fails, candidates poll, and take it up again: by a new subscription and
// another read. In a Cluster it subscribes at the key's own master. What a
// fail-over or DEL does to the record is not published: candidates find it by
// reading when the term is over.
//
// It tells of what is not yet safe: a write is published when the script runs, before
// it is on disk, before a replica has it, and before its writer's WAIT has returned.
// What a fail-over or a restart then undoes, the feed has told of all the same, and
// does not take back. A feed never confirms a write.
//
// # What it takes for an answer
//
// Each script's answer repeats a mark that no other request has: one that comes late,
// or was meant for somebody else, as behind a proxy that shares connections, is an
// error. A server that falls silent is left by a call after the client's ReadTimeout,
// and by a feed after FeedSilence and 5 s more.
package redis
