// Package consul keeps an election in Consul's key-value store, as one key. A check-and-set
// on the key's ModifyIndex decides who leads, and blocking queries tell the others.
//
//	decider := consul.NewDecider(nil, "http://127.0.0.1:8500", "elections/web", nil)
//
// The address is that of an agent, best the one on the same machine: it finds the servers,
// and another one when a server dies. The package speaks Consul's HTTP API by net/http, and
// needs no module for it.
//
// # What is written where
//
// The record is the key's value, for consul kv get to show. A leadership hangs on its term,
// and on no session. A session that is invalidated fences nothing off: its holder may not
// know yet, and Consul invalidates it by the clock and health checks of others. So a key on
// which a session holds a lock is reported and left alone, for it may be deleted with the
// session. What fences is the ModifyIndex, and for the resource the election number.
//
// The key's flags are a random number for each write. The answer to a write has them, and
// so it is told from that to any other; and each write is a change, since one that changes
// nothing has no index of its own. They mean nothing else, and may be edited away.
//
// A key that holds no record is reported, and left alone. Nothing ever deletes the key; an
// operator who does (consul kv delete) makes the election empty, and two may lead for a
// term: nothing shows that there was a record. A value of no bytes is damage, and left
// alone. The key must not begin or end with a slash, nor have empty names, "." or "..", "%",
// or letters that cannot be printed: Consul, or what is on the way, changes or refuses these.
//
// # What Consul promises
//
// A write is a transaction of one operation (PUT /v1/txn, verb cas), since the answer to that
// has the new ModifyIndex, and that of PUT /v1/kv does not. It goes through Raft: it is
// confirmed when a majority of the servers has it on disk, and none shows it before. So what
// a read or a query tells of is never undone. Giving up a request does not stop a
// write that the servers have begun, nor does it show any sooner: read. The agent may carry
// a request to another leader, so an answer of "index is stale" may be to a write of one's
// own that has happened: read, too.
//
// Reads are in Consul's mode "consistent": the leader makes sure by a majority that it still
// leads. In the mode "default" a leader that was deposed may answer with what was, for as
// long as its lease on the leadership lasts, and in the mode "stale" any server, however far
// behind (https://developer.hashicorp.com/consul/api-docs/features/consistency). Tried on 1.14: a
// leader whose followers stood still answered reads in the mode "default" for more than half a
// second, as if all were well, and "stale" ones on and on, and refused "consistent" ones. All
// of them show only what is committed, and a write by an old index is refused, so
// staleness would cost time and not safety. An answer that does not say that the leader has given it
// (X-Consul-KnownLeader, X-Consul-LastContact) is an error.
//
// Indexes of one set of servers are never used again, also after the key was deleted, or
// consul snapshot restore has put an older state in place: whoever knows a later one has lost
// the race.
//
// What can lose a confirmed write, so that two may lead for up to a term: a snapshot that is
// restored; servers that lose their disks, or a majority of which is given up
// (raft/peers.json); an agent in -dev mode, which keeps all in memory. New servers that
// were made from a snapshot also give indexes once more that others have seen. Stop all
// candidates for a term, and see leaderelect reset. The command leaderelect doctor asks for
// the number of servers, see Decider.Durability.
//
// Each datacenter has its own keys, which are not replicated: all candidates must name the
// same one.
//
// # Clocks
//
// Consul does not say when it wrote. CommitTS is zero, and a candidate whose clock is wrong
// is not found out by the store.
//
// # Permissions
//
// Candidates need the rule key "elections/web" { policy = "write" }, observers "read". The
// token goes in the header X-Consul-Token, in the clear if the address is not https. The
// list of servers that doctor asks for needs no permission. In the agent's configuration
// http_config.block_endpoints must not name /v1/kv or /v1/txn, and allow_write_http_from must
// have the candidates' addresses.
//
// # What it costs
//
// An extension is one transaction, about twice a term (515 an hour at 15 s), and one query
// of each candidate and observer, the leader included, for a query ends with each change.
// Else each asks once in Options.FeedWait. A hand-over is two writes, and no read.
// ReadCurrent is one request, with one round of the leader's to the servers.
//
// A feed holds one connection to the agent, which allows 200 for each address by default
// (limits.http_max_conns_per_client), and one of the queries that the servers' leader keeps in
// memory. The value in base64 must fit in limits.kv_max_value_size, which is 512 KB by default; a record has 256
// KiB at most.
//
// # How the feed works
//
// It reads the key, and then asks for what comes after its index, each time for the record
// itself. The first question is in the mode "consistent", the others in "default". If an index
// goes back, the servers were restored, or one lags behind: it asks once more as if for the first time, and
// tells what it finds. If answers come at once and tell nothing new, it pauses, from 50 ms to 5
// s. It fails if there is no leader, or if a query is not answered 10 s after the
// latest time that it should have been; then candidates poll, and take it up again.
//
// News is there within milliseconds. When the servers' leader dies, writes and queries
// fail until there is another one: 3 s on three servers with raft_multiplier 1, which is
// what Consul's documentation advises for production; by default it is 5.
package consul
