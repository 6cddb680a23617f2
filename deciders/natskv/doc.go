// Package natskv keeps an election under one key of a NATS JetStream key-value bucket.
//
//	nc, err := nats.Connect(url, natskv.ConnectOptions()...)
//	js, err := jetstream.New(nc)
//	decider := natskv.NewDecider(js, "elections", "billing", nil)
//
// # What is written where
//
// The key's value is the record: one JSON object, which nats kv get BUCKET KEY shows. A bucket is a
// JetStream stream called KV_BUCKET, and the key its subject $KV.BUCKET.KEY. The key's revision is
// the record's version. A write names the revision it replaces, and the server refuses it if the
// key has another. There is no lock and no TTL. Many elections, and other keys, may share a bucket.
//
// Never delete the key: it holds the election number, the fencing token. For another leader use
// leaderelection.StepDown or Transfer. A key that was deleted or purged is an empty election. The
// marker that is left shows that there was a record, so candidates wait a term (RaceEntry.Emptied),
// and the next record is conditional on the marker. If the stream was purged of the marker, too,
// nothing shows it. A value of no bytes is damage, and is left alone.
//
// # The bucket
//
//	nats kv add elections --replicas 3 --storage file
//
// Options.Create, and create=true in the URL of Open, make it as well. History may be anything: 1
// is enough. With some settings the server may drop or replace the record on its own, so they are
// refused, with an ErrPermanent that says why:
//
//   - A TTL (nats kv add --ttl) of any length. It forgets the record if nobody has led for that
//     time, as over a weekend. Election numbers then begin at 1 again, below every token that a
//     resource has seen. A limit marker TTL does no harm, nor does a TTL of other keys. A TTL that
//     somebody gives this key by hand goes with the next extension.
//   - A mirror, or sources: what their origin writes is unconditional.
//   - In streams made by hand: discarding old messages when full, interest or work-queue retention,
//     and persist mode async.
//   - In streams made by hand, what prevents or does not confirm writes: no acks, discarding new
//     messages per subject, a sealed stream, a subject transform, message counters.
//
// The Decider checks them when it first uses the bucket. Do not make such changes later. Do not
// delete the bucket, restore it from a backup or make it again while candidates run: revisions then
// start again, and an old one may become valid for another record.
//
// # What the store promises, and when it does not keep it
//
// With 3 replicas on file storage, a write is acknowledged when a majority of the replicas has it
// in its Raft log. The comparison and the write are one entry of that log. You may lose one server.
// Without a majority, writes time out, the leader steps down when its view ends, and nobody leads
// until the majority is back.
//
// If an acknowledged write is forgotten, two candidates can each hold a valid record. It depends on
// storage and replicas, which leaderelect doctor asks for (Decider.Durability), and on
// sync_interval, which no client can ask for. A write is forgotten:
//
//   - With storage=memory and one replica, by every restart of the server. With several, by a
//     restart of a majority at once. Use it for tests.
//   - With one replica, if its machine crashes or loses power: a server syncs its files every two
//     minutes and acknowledges before that. A crash of the server process alone loses nothing.
//   - With three replicas, if a majority of machines goes down at once, or one loses what it had
//     acknowledged while another is away.
//
// "sync_interval: always" in the jetstream block of each server's configuration prevents the last
// two. It costs one disk sync a write. An election, with two writes a term, does not notice it.
// Otherwise place the replicas so that they do not share a power supply. See
// https://docs.nats.io/reference/2.14/config/jetstream/sync_interval,
// https://docs.nats.io/nats-concepts/jetstream ("Syncing data to disk") and
// https://jepsen.io/analyses/nats-2.12.1.
//
// Any replica may answer a read, even one that has lost its majority, and the response may be
// stale. That costs a lost race at worst: only acknowledged writes decide who leads.
//
// A write counts only if the bucket's own stream acknowledges it, with a sequence number above the
// one that it replaced. Giving a call up changes nothing at the server: the request arrives or not,
// and the response is dropped.
//
// # How long a term should be
//
// When the server dies that leads a replicated bucket's stream, nobody can write until the others
// have elected another: 5.3 s on average, up to 9 s (three servers on one machine, killed). A
// leadership survives this if half of the term, less half of the clock skew, is longer: TermLength
// 20 s or more. With the default of 15 s most do. The client leaves a silent server after 4 s. So
// use less than 10 s only with one server, or if a new leader costs little.
//
// # The connection
//
// Make it with ConnectOptions, as Open does. nats.go's own defaults close it for good after sixty
// attempts, or when a server has refused the user twice, for example while a password is changed,
// or after a user's JWT has expired. Such a candidate must be started again. To end the program
// then, so that its supervisor restarts it, use nats.ClosedHandler.
//
// The decider makes the connection reconnect, to another server if there are several, if the server
// answers neither a call nor a PING for two seconds, or if the feed's heartbeats stay away as long
// and the PING is not answered either. It does so even with a connection of yours, with everything
// else on it. nats.go by itself waits for six minutes, and candidates that hang on one silent
// server elect nobody in that time.
//
// # The feed
//
// The server pushes changes within about 0.1 ms of the write (measured with one server, on one
// machine; 0.3 ms with three), with the revision that a write needs. The feed uses a consumer of
// the server's, as nats kv watch does. If the server has been silent for two seconds (it sends a
// heartbeat every second), or a message was missed, the feed ends with an error. The candidate then
// polls, and starts another. Until then a dead feed costs time, not safety: a standby reads when
// the leader's term has run out, whatever its feed says.
//
// It shows only what is committed: a replica gives consumers a message when the Raft log's majority
// has it. But a majority can forget it later (see above). One replica shows it before the disk is
// synced. A feed never confirms a write.
//
// # What it costs
//
// An extension is one request and its response, about 500 bytes each way. A standby costs one small
// message a second for the heartbeat, and one for each extension. A read is one request. The first
// use looks up the bucket: two requests.
//
// While the client is not connected, calls fail at once: the client would keep them, and send them
// late. A call whose ctx has no deadline is given up after the JetStream context's default timeout,
// 5 s. If a full connection delays a call, it returns with its ctx, and its goroutine ends later.
// At most 16 are under way at once.
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
// A client that names a JetStream domain D publishes to $JS.D.API instead, even its writes:
// $JS.D.API.$KV.B.K. A server of that domain maps these to the ones above before it checks
// permissions. A client of another domain, joined to it by a leaf node, needs them as they are.
//
// A bucket that does not allow direct reads needs $JS.API.STREAM.MSG.GET.KV_B instead of the
// second. Creating the bucket also needs $JS.API.INFO and $JS.API.STREAM.CREATE.KV_B. If users must
// not read each other's responses, give each an inbox prefix of its own (nats.CustomInboxPrefix).
//
// NATS does not answer a request that is not permitted, but tells the connection. If a response is
// late, a decider looks there. So after a quarter of a second a missing permission is an
// ErrPermanent that names the subject.
package natskv
