// Package gcs keeps an election in one object of a Google Cloud Storage bucket. It needs no server
// of yours.
//
//	client, err := storage.NewClient(ctx)
//	...
//	d := gcs.NewDecider(client, "my-bucket", "elections/nightly", nil)
//
// The client reads a key's file once, so a renewed key needs a new client. Open makes one.
//
// # What is written where
//
// There is one object per election, at the name that you give to NewDecider. Its content is the
// record, as JSON, the same in every store. Any other content is refused and never overwritten. An
// object of no bytes is damage, and is left alone.
//
// Never delete the object: even if nobody leads, it holds the fencing token's count. A deleted
// object leaves no sign for a read, even with soft delete. Never restore an older version of it
// while candidates run: numbers would be given out again.
//
// A server that imitates Cloud Storage but takes no notice of conditions would let everybody lead.
// So if you use Open with an endpoint, or set STORAGE_EMULATOR_HOST, a Decider tests the server
// with its first write: the server must then refuse two more writes of the same content, whose
// conditions do not hold. A client of your own with another endpoint is not tested: use Open for
// it.
//
// # What the store promises
//
// A write with the precondition ifGenerationMatch happens only if the object's live generation is
// the one given. 0 means that there is no object. Otherwise the write fails with 412
// (https://cloud.google.com/storage/docs/request-preconditions). A generation never comes back.
//
// Reads after writes are strongly consistent, in all of a bucket's regions, except for objects that
// are public and cacheable (https://cloud.google.com/storage/docs/consistency). The Decider writes
// its object with Cache-Control no-store.
//
// Acknowledged writes are on several devices in at least two zones. In a dual- or multi-region
// bucket a write is acknowledged before the other region has it
// (https://cloud.google.com/storage/docs/availability-durability). If a whole region is lost in
// that time, the last extensions are lost, too. No setting of a bucket loses writes, but these harm
// an election. The command leaderelect doctor checks most of them (Decider.Durability):
//
//   - A lifecycle rule that deletes by age can delete the record of an election in which nothing
//     happens. Its count then starts again. Exclude the object's prefix.
//   - A retention policy or an object hold prevents the record from being replaced: every write is
//     refused (403).
//   - Soft delete (on by default, 7 days) and object versioning keep and bill each replaced
//     generation: half a kilobyte per write, 87,000 writes a week. Prefer a bucket that has
//     neither, or versioning with a lifecycle rule that deletes noncurrent versions.
//   - Nearline, Coldline and Archive as the default class bill each replaced record for 30 days and
//     more. Prefer Standard.
//
// # What is believed
//
// A 200 may come from a portal or a cache. So a write counts only if the response describes the
// object with the name, the length and the CRC32C of what was sent. A read counts only if it has a
// generation and the CRC32C of the content. An object counts as missing only if the JSON API says
// notFound: a bare 404 may be a proxy's. An error without one of Google's own reasons counts as
// temporary, whatever its status.
//
// Nothing in a response binds the generation to the rest. So let no proxy join an old response with
// the newest generation: a record would be replaced that nobody has seen. A cache that keeps whole
// responses does no harm: their generation is as old as their content.
//
// # Permissions
//
// Candidates need the role Storage Object User (roles/storage.objectUser):
//
//   - storage.objects.get to read the record;
//   - storage.objects.create and storage.objects.delete to write it, since replacing an object
//     deletes the old one;
//   - storage.objects.list once, if there is no object yet, to tell an empty election from a
//     missing bucket.
//
// An IAM condition on resource.name can limit the role to the election's prefix. It cannot grant
// storage.objects.list, which belongs to the bucket: grant it separately. Without it, the first
// write notices a missing bucket.
//
// The command leaderelect doctor writes an object next to the record, whose name ends in "-doctor".
// An observer that never writes needs Storage Object Viewer (roles/storage.objectViewer). With
// Options.KMSKeyName, Cloud Storage's service agent needs Cloud KMS CryptoKey Encrypter/Decrypter
// on the key.
//
// # Costs
//
// At the defaults (a term of 15 s, a skew of 1 s) a leader makes about 515 writes an hour, each a
// class A operation. Each standby makes 480 reads, each a class B operation
// (https://cloud.google.com/storage/pricing). In Standard storage in one region, at 0.005 USD per
// thousand class A and 0.0004 USD per thousand class B operations, that is about 1.90 USD a month
// for the leader and 0.14 USD for each standby. A longer term costs less in proportion.
//
// # Limits
//
// One object takes about one write a second (https://cloud.google.com/storage/quotas). Beyond that
// the store answers 429. At the defaults an election writes once in 7 s. Do not use terms below
// about 3 s: extensions alone come near the limit. Bucket names have 3 to 222 characters, object
// names up to 1,024 bytes.
//
// # The store's time
//
// A token from WriteEntry has the object's Updated as CommitTS, in milliseconds at least. A token
// from ReadCurrent has the download's Last-Modified header: the same moment in whole seconds.
//
// # Deadlines
//
// Each look and each write is one request, made once, within its ctx. The first look, and a look
// that finds the object gone, are two. The client's own retries are not used: the campaign retries,
// and finds out what became of a write whose response was lost. If a download breaks off, the
// client asks for the rest of that same generation.
//
// A write that is given up still happens as a whole or not at all, perhaps later. What a read shows
// is stored for good. An upload that is cut off makes no object.
//
// Clients of both of Google's transports work: storage.NewClient, which the tests use, and
// storage.NewGRPCClient.
//
// # Connections that die silently
//
// A NAT or a firewall may forget a connection without telling anyone. Open's client uses HTTP/1: a
// call that is given up closes its connection. With HTTP/2 all calls share one, so the next is lost
// as well. In a client of your own, do one of these:
//
//   - With HTTP, give option.WithHTTPClient a client with a transport of your own (NewTransport of
//     google.golang.org/api/transport/http adds the credentials). Set the http.Transport's
//     HTTP2.SendPingTimeout and HTTP2.PingTimeout to one or two seconds.
//   - With gRPC, use option.WithGRPCDialOption and grpc.WithKeepaliveParams. gRPC pings every 10 s
//     at most.
package gcs
