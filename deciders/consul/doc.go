// Package consul keeps an election in Consul's key-value store, as one key. A check-and-set on the
// key's ModifyIndex decides who leads, and blocking queries tell the others.
//
//	decider := consul.NewDecider(nil, "http://127.0.0.1:8500", "elections/web", nil)
//
// The address is that of an agent, best the one on the same machine: it finds the servers, and
// another server when one dies. The package speaks Consul's HTTP API by net/http, and needs no
// module for it.
//
// # What is written where
//
// The record is the key's value: consul kv get shows it. A leadership depends on its term, not on a
// session. When Consul invalidates a session, by the clock and health checks of others, its holder
// may not know it yet. So a session fences nothing off. The ModifyIndex does, and for the resource
// the election number. If a session holds a lock on the key, the key is reported and left alone,
// since Consul may delete it with the session.
//
// The key's flags are a random number for each write. They identify the response to a write, and
// make each write a change: one that changes nothing has no index of its own. They mean nothing
// else, and you may edit them away.
//
// A key that does not hold a record is reported, and left alone. Never delete the key (consul kv
// delete): the election is then empty, nothing shows that there was a record, and two may lead for
// a term. A value of no bytes is damage, and is left alone.
//
// The key must not begin or end with a slash, nor have empty names, "." or "..", "%", or letters
// that cannot be printed: Consul or a proxy changes or refuses these.
//
// # What Consul promises
//
// A write is a transaction of one operation (PUT /v1/txn, verb cas), since its response has the new
// ModifyIndex, and that of PUT /v1/kv does not. It goes through Raft: it is confirmed when a
// majority of the servers has it on disk, and none shows it before. So what a read or a query shows
// is never undone.
//
// A write that is given up may still happen, and shows no sooner: read. The agent may carry a
// request to another leader. So "index is stale" may be the response to a write that has happened:
// read, too.
//
// Reads are in Consul's mode "consistent": the leader makes sure by a majority that it still leads.
// In the mode "default" a deposed leader may answer with old data while its lease on the leadership
// lasts. In the mode "stale" any server may answer, however far behind
// (https://developer.hashicorp.com/consul/api-docs/features/consistency). On 1.14, a leader whose
// followers stood still answered "default" reads for more than half a second and "stale" reads
// without end, and refused "consistent" reads. All modes show only what is committed, and a write
// by an old index is refused. So staleness costs time and not safety. A response that does not say
// that the leader has given it (X-Consul-KnownLeader, X-Consul-LastContact) is an error.
//
// One set of servers never uses an index again, even after the key was deleted, or after consul
// snapshot restore: a candidate that knows a later index has lost the race.
//
// These can lose a confirmed write, so that two may lead for up to a term:
//
//   - a restored snapshot;
//   - servers that lose their disks, or a majority of which is given up (raft/peers.json);
//   - an agent in -dev mode, which keeps everything in memory.
//
// New servers made from a snapshot also give out again indexes that others have seen. Stop all
// candidates for a term, and see leaderelect reset. The command leaderelect doctor asks for the
// number of servers, see Decider.Durability.
//
// Each datacenter has its own keys, which are not replicated: all candidates must name the same
// datacenter.
//
// # Clocks
//
// Consul does not say when it wrote. CommitTS is zero, and the store does not reveal a candidate's
// wrong clock.
//
// # Permissions
//
// Candidates need the rule key "elections/web" { policy = "write" }, observers "read". The token
// goes in the header X-Consul-Token, in the clear if the address is not https. The list of servers
// for doctor needs no permission. In the agent's configuration http_config.block_endpoints must not
// name /v1/kv or /v1/txn, and allow_write_http_from must have the candidates' addresses.
//
// # What it costs
//
// An extension is one transaction, about twice a term (515 an hour at 15 s). A query ends with each
// change, so an extension also costs one query of each candidate and observer, the leader included.
// Without changes each asks once in Options.FeedWait. A hand-over is two writes, and no read.
// ReadCurrent is one request, with one round of the leader's to the servers.
//
// A feed holds one connection to the agent, which allows 200 for each address by default
// (limits.http_max_conns_per_client), and one of the queries that the servers' leader keeps in
// memory. The value in base64 must fit in limits.kv_max_value_size, 512 KB by default. A record has
// 256 KiB at most.
//
// # How the feed works
//
// It reads the key, and then asks for the record after its index, again and again. The first query
// is in the mode "consistent", the others in "default". If an index goes back, the servers were
// restored, or one lags behind: the feed asks as if for the first time, and tells what it finds. If
// responses come at once and have nothing new, it pauses, from 50 ms to 5 s. It fails if there is
// no leader, or if a response is 10 s overdue. Then candidates poll, and start it again.
//
// News arrives within milliseconds. When the servers' leader dies, writes and queries fail until
// there is another: 3 s on three servers with raft_multiplier 1, which Consul's documentation
// advises for production. The default is 5.
package consul
