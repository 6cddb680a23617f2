// Package natskv keeps an election under one key of a NATS JetStream key-value
// bucket.
//
//	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
//	js, err := jetstream.New(nc)
//	decider := natskv.NewDecider(js, "elections", "billing", nil)
//
// # What is written where
//
// The key's value is the record: one JSON object, which nats kv get BUCKET KEY
// shows. A bucket is a JetStream stream called KV_BUCKET, and the key its subject
// $KV.BUCKET.KEY. The key's revision is the record's version: a write names the
// revision it replaces, and the server refuses it where the key has another. A
// write is nothing but that: no lock, no TTL. Many elections, and other keys, may
// share a bucket.
//
// Nothing here deletes the key, and nobody should: with it goes the election
// number, the fencing token. A key that was deleted or purged is an empty
// election; its next record is conditional on the marker that was left. To have
// another leader use leaderelection.StepDown or Transfer.
//
// # The bucket
//
//	nats kv add elections --replicas 3 --storage file
//
// Options.Create, and create=true in the URL of Open, make it as well. History
// may be anything, 1 is enough. These are refused, with an ErrPermanent that says
// why, since under them the server may drop or replace the record on its own:
//
//   - a TTL (nats kv add --ttl), of whatever length. It forgets the record when
//     nobody has led for so long, as over a weekend, and election numbers begin at
//     1 again: every token that a resource has seen would be greater. A limit
//     marker TTL does no harm, nor does a TTL of other keys; a TTL that somebody
//     gives this key by hand goes with the next extension.
//   - a mirror, or sources: what their origin writes is unconditional.
//   - as streams made by hand may be: discarding old messages when full, interest
//     or work-queue retention, and persist mode async.
//
// They are looked for when the bucket is first used. Do not change a bucket in
// these ways while it is, and do not delete it, restore it from a backup or make
// it anew under running candidates: revisions then start again, and an old one may
// come to be valid for another record.
//
// # What the store promises, and when it does not keep it
//
// With 3 replicas on file storage, a write is acknowledged when a majority of the
// replicas has it in its Raft log, and the comparison and the write are one entry
// of that log. One server may be lost. Without a majority, writes time out, the
// leader steps down when its view ends, and nobody leads until it is back.
//
// An acknowledged write must not be forgotten, or two candidates can each hold a
// valid record. It is forgotten:
//
//   - With storage=memory and one replica, by every restart of the server; with
//     several, when a majority is restarted at once. Use it for tests.
//   - With one replica, when its machine crashes or loses power: a server syncs
//     its files every two minutes and acknowledges before that. A crash of the
//     server process alone loses nothing.
//   - With three replicas, when a majority of machines goes down at once, or one
//     loses what it had acknowledged while another is away.
//
// "sync_interval: always" in the jetstream block of each server's configuration
// closes the last two, at the price of one disk sync a write, which an election,
// with two writes a term, does not notice. Otherwise put the replicas where they
// do not share a power supply. See
// https://docs.nats.io/reference/2.14/config/jetstream/sync_interval,
// https://docs.nats.io/nats-concepts/jetstream ("Syncing data to disk") and
// https://jepsen.io/analyses/nats-2.12.1.
//
// A read may be answered by any replica, and be stale; also one that has lost its
// majority answers. That costs a lost race at worst: whether one leads rests on
// acknowledged writes alone.
//
// # The feed
//
// Changes is pushed by the server within about 0.1 ms of the write (measured with
// one server, on one machine; 0.3 ms with three), with the revision that a write
// needs. It uses what nats kv watch does, a
// consumer of the server's, but does not mend itself silently: when the server has
// been silent for two seconds (it sends a heartbeat every second), or a message
// was missed, it ends with an error. The candidate then polls, and starts another.
// Until it is noticed, a dead feed costs time, not safety: a standby reads when
// the leader's term has run out, whatever its feed says.
//
// # What it costs
//
// An extension is one request and its answer, about 500 bytes each way. A standby
// costs one small message a second for the heartbeat, and one for each extension.
// A read is one request. The first use looks up the bucket: two requests.
//
// While the client is not connected, calls fail at once: what it is given then it
// would keep, and send late. A call whose ctx has no deadline is given up after
// the JetStream context's default timeout, 5 s.
//
// # Permissions
//
// A user that may do nothing else needs, for bucket B and key K:
//
//	publish:   $JS.API.STREAM.INFO.KV_B                  look up the bucket
//	           $JS.API.DIRECT.GET.KV_B.$KV.B.K           read
//	           $KV.B.K                                   write (candidates only)
//	           $JS.API.CONSUMER.CREATE.KV_B.*.$KV.B.K    the feed
//	subscribe: _INBOX.>                                  answers
//
// A client that names a JetStream domain D publishes to $JS.D.API instead, also
// its writes: $JS.D.API.$KV.B.K. A server of that domain maps these to the ones
// above before it looks at permissions; a client of another, joined to it by a leaf
// node, needs them as they are.
//
// A bucket that does not allow direct reads takes $JS.API.STREAM.MSG.GET.KV_B in
// place of the second. To create the bucket takes $JS.API.INFO and
// $JS.API.STREAM.CREATE.KV_B as well. Give each user an inbox prefix of its own
// (nats.CustomInboxPrefix) where users must not read each other's answers.
//
// NATS does not answer a request that is not permitted, but tells the connection.
// A decider looks there when an answer is late, so that a missing permission is an
// ErrPermanent that names the subject, after a quarter of a second.
package natskv
