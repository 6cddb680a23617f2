// Package redis keeps an election in Redis (or Valkey), as one key. A Lua script decides who leads,
// and publishes the record: candidates and observers learn of every change within about a
// millisecond.
//
//	client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379", MaxRetries: -1, ContextTimeoutEnabled: true})
//	decider := redis.NewDecider(client, "election:web", nil)
//
// You can use any UniversalClient: a Client, a fail-over Client that finds its master by Sentinel,
// or a ClusterClient. One key is one slot, so Cluster needs nothing special.
//
// # What is written where
//
// The key is a hash with two fields (HGETALL shows them):
//
//   - "record" is the record as JSON.
//   - "version" is unlike every version before, even after the key was deleted, after FLUSHALL, and
//     on another server. It is made of the server's clock and a random number.
//
// The key never expires: a write removes an expiry that somebody has set. Never delete the key: the
// election is then empty, nothing shows that there was a record, and two may lead for a term. A
// hash without a version, or with a record of no bytes, is damage, and is left alone. Each write
// publishes version and record on a channel, by default "leaderelection:" and the key.
//
// # What Redis can lose
//
// A script runs alone, so of two writes conditional on one version one wins. But Redis answers
// before the write is on disk, and before a replica has it. If Redis forgets a confirmed write, its
// leader has a view that the others know nothing of, and two may lead for up to a term. The command
// leaderelect doctor asks the server which of these its settings allow (Decider.Durability):
//
//   - A server that restarts without having saved: with appendonly no, or with appendfsync everysec
//     (up to a second of writes; more under load). Set appendonly yes and appendfsync always, or
//     keep a server that has lost its data away from clients for a term.
//   - A fail-over (by Sentinel, by Cluster, or of a managed service) to a replica that lags behind.
//     A master that a partition has cut off goes on answering until it learns of the fail-over. See
//     Options.WaitReplicas below. Also set min-replicas-to-write (with min-replicas-max-lag): a
//     master that is cut off from its replicas then refuses writes after some seconds.
//   - maxmemory with an eviction policy that may take keys without an expiry (allkeys-*): use
//     noeviction or volatile-*.
//
// With Options.WaitReplicas a write counts only when that many replicas have it (WAIT,
// https://redis.io/docs/latest/commands/wait/). Set it to the number of replicas. Then any replica
// that is promoted has every write that counted. But nobody leads while a replica is away, until it
// is back or replaced (22 s in a fail-over of three servers). With one less, somebody leads again
// sooner (4.3 s), but the replica that lacks the write may be the one that is promoted. In an hour
// of deliberate failures, with two replicas and a wait for one of them, 1 of 373 tokens was given
// out twice; with a wait for both none was (docs/reliability.md). To survive the loss of a replica
// without a pause, take a store with a quorum.
//
// Everybody sees a write as soon as the script has run. WAIT only asks who else has it. Giving up a
// call, or its WAIT, does not change what Redis shows. So this handle does not believe its own
// writes, nor what Transfer or StepDown wrote over them, until WAIT confirms them. Until then each
// read costs a write (HSET of the version over itself) and a WAIT.
//
// A single server with appendfsync always keeps what it confirms. If there must never be two
// leaders, prefer a store with a quorum, or fence the resource itself by the election number (see
// the package fence).
//
// # Several independent masters
//
// Redlock, which redsync also has, takes a majority of yes from masters that know nothing of each
// other for a lock. This package does not. Two candidates may each win some masters, so that no version
// has a majority: to finish such writes safely takes a consensus protocol. A master that restarts
// without its last writes votes a second time. And such a lock has no number that grows, so nothing
// for a fence.
//
// If the loss of one server is to stop nobody, use Options.WaitReplicas with Sentinel or a Cluster,
// within the limits above, or a store with a consensus protocol, such as etcd, NATS or ZooKeeper.
//
// # Permissions
//
// You need Redis 5 or later (scripts that ask for the time before they write), or any Valkey.
// Candidates need the following, and observers the same without the last four commands:
//
//	ACL SETUSER candidate on >secret ~election:web &leaderelection:election:web \
//	    +eval +hmget +exists +subscribe +ping +time +hset +persist +publish
//
// Options.WaitReplicas also needs +wait, a Cluster +cluster, and a database other than 0 +select.
// leaderelect doctor uses +info and +config|get, both optional, to examine what Redis can lose.
//
// # What it costs
//
// An extension is one EVAL (some 1.2 KB), about 515 an hour at the default term of 15 s. With
// WaitReplicas a WAIT goes along in the same round trip. Standbys and observers hold one connection
// for each election, and ask nothing while the leader extends its term: the messages bring the
// records. A standby without a feed reads 480 times an hour.
//
// CommitTS is the server's clock, in microseconds.
//
// # How the feed works
//
// It subscribes, and then reads the record once, so that it misses nothing. In a Cluster it
// subscribes at the key's own master. After a silence of Options.FeedSilence it asks on its
// connection whether the server is there (PING). If the connection breaks, or no response comes,
// the feed fails, and candidates poll and start it again. Redis does not publish what a fail-over
// or DEL does to the record: candidates find it by reading when the term is over.
//
// A feed never confirms a write. A write is published when the script runs: before it is on disk,
// before a replica has it, and before its writer's WAIT has returned. If a fail-over or a restart
// undoes it, the feed does not take it back.
//
// # What it takes for an answer
//
// Each script's response repeats a mark that no other request has. A late response, or one for
// somebody else (as behind a proxy that shares connections), is an error. If a server falls silent,
// a call gives up after the client's ReadTimeout, and a feed after FeedSilence and 5 s more.
package redis
