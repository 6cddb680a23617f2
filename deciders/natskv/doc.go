// Package natskv keeps an election under one key of a NATS JetStream key-value
// bucket.
//
//	nc, err := nats.Connect(url, natskv.ConnectOptions()...)
//	js, err := jetstream.New(nc)
//	decider := natskv.NewDecider(js, "elections", "billing", nil)
//
// # What is written where
//
// The key's value is the record: one JSON object, which nats kv get BUCKET KEY
// shows. A bucket is a JetStream stream called KV_BUCKET, and the key its subject
// $KV.BUCKET.KEY. The key's revision is the record's version: a write names the
// revision it replaces, and the server refuses it if the key has another. A
// write is only that: no lock, no TTL. Many elections, and other keys, may
// share a bucket.
//
// Nothing here deletes the key, and nobody should: with it goes the election
// number, the fencing token. A key that was deleted or purged is an empty
// election; its next record is conditional on the marker that was left, and the marker shows
// that there was a record, so that candidates wait a term (RaceEntry.Emptied). A key whose
// stream was purged of the marker, too, shows nothing. A value of no bytes is damage, and
// left alone. To have
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
//     or work-queue retention, and persist mode async;
//   - what could never be written to or confirmed, as streams made by hand may be,
//     too: no acks, discarding new messages per subject, a sealed stream, a subject
//     transform, message counters.
//
// They are looked for when the bucket is first used. Do not change a bucket in
// these ways while it is, and do not delete it, restore it from a backup or make
// it again under running candidates: revisions then start again, and an old one may
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
// valid record. Storage and replicas, of which leaderelect doctor asks
// (Decider.Durability), and sync_interval, which no client is told, decide that. It is
// forgotten:
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
// A write counts only if the bucket's own stream acknowledges it, with a sequence
// number above the one that it replaced. Giving a call up changes nothing at the
// server: the request is on its way, and lands or not, and the answer is dropped.
//
// # How long a term should be
//
// When the server dies that leads a replicated bucket's stream, nobody can write
// until the others have elected another: 5.3 s on average, up to 9 s (three servers
// on one machine, killed). A leadership outlasts this if half of the term, less half
// of the clock skew, is longer: TermLength 20 s or more. With the default of 15 s
// most do. A server that falls silent is left after 4 s, so that less than 10 s is
// sensible only with one server, or where a new leader is cheap.
//
// # The connection
//
// Make it with ConnectOptions, as Open does. nats.go's own defaults close it for
// good after sixty attempts, or when the user was refused twice: as while a password
// is changed, or a user's JWT has expired. Such a candidate can only be started again.
// To end the program then, so that its supervisor does so, give nats.ClosedHandler.
//
// If the server answers neither a call nor a PING for two seconds, or the feed's
// heartbeats stay away as long and the PING is not answered either, the decider makes
// the connection reconnect, to another server if there are several. Also a
// caller's, with whatever else is on it: nats.go by itself waits for six minutes, in
// which candidates that hang on one silent server elect nobody.
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
// It tells of nothing that is not committed: a replica stores a message, from which
// consumers get it, when the Raft log's majority has it. What a majority can forget
// (see above) the feed has told of all the same; so has that of one replica, which
// tells before the disk is synced. A feed never confirms a write.
//
// # What it costs
//
// An extension is one request and its answer, about 500 bytes each way. A standby
// costs one small message a second for the heartbeat, and one for each extension.
// A read is one request. The first use looks up the bucket: two requests.
//
// While the client is not connected, calls fail at once: what it is given then it
// would keep, and send late. A call whose ctx has no deadline is given up after
// the JetStream context's default timeout, 5 s. One that a full connection holds up
// returns with its ctx, and its goroutine later; at most 16 are under way at once.
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
// (nats.CustomInboxPrefix) if users must not read each other's answers.
//
// NATS does not answer a request that is not permitted, but tells the connection.
// A decider looks there when an answer is late, so that a missing permission is an
// ErrPermanent that names the subject, after a quarter of a second.
package natskv
