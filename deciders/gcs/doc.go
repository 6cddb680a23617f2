// Package gcs keeps an election in one object of a Google Cloud Storage bucket: a
// store that whoever runs on Google Cloud has, and that needs no server.
//
//	client, err := storage.NewClient(ctx)
//	...
//	d := gcs.NewDecider(client, "my-bucket", "elections/nightly", nil)
//
// The client reads a key's file once, so a key that is renewed takes a new client. Open makes one.
//
// # What is written where
//
// One object per election, at the name that NewDecider is given. Its content is
// the record, as JSON, the same in every store; "gcloud storage cat" shows it. An
// object at that name whose content is anything else is not ours, and is refused
// rather than overwritten. Nothing is ever deleted: the record of an election that
// nobody leads holds the fencing token's count. Nor restore an older version of it
// while candidates run: numbers would be given out again. A deleted object leaves no sign
// for a read, also under soft delete; an object of no bytes is damage, and left alone.
//
// Other servers speak Cloud Storage's API, such as emulators. An imitation that takes no
// notice of conditions would have everybody lead. So by Open with an endpoint, or with
// STORAGE_EMULATOR_HOST set,
// the first write of a Decider counts only when the server has refused two that it must
// refuse: they send the same content again on a condition that does not hold. A client of your own that leads elsewhere does not say so: use Open
// for it.
//
// # What the store promises
//
// A write with the precondition ifGenerationMatch happens only if the object's
// live generation is the one given, 0 meaning that there is no object, and fails
// with 412 otherwise (https://cloud.google.com/storage/docs/request-preconditions).
// Reads after writes are strongly consistent, in all of a bucket's regions, save
// for objects that are public and cacheable
// (https://cloud.google.com/storage/docs/consistency); the Decider writes its
// object with Cache-Control no-store. A generation never comes back.
//
// Acknowledged writes are on several devices in at least two zones. In a dual- or
// multi-region bucket a write is acknowledged before the other region has the
// content (https://cloud.google.com/storage/docs/availability-durability); where a
// whole region burns down in that time, the last extensions go with it, and the
// election is as it was a little earlier. No other setting loses them, but these
// harm an election; the command leaderelect doctor asks for most (Decider.Durability):
//
//   - A lifecycle rule that deletes by age would one day delete the record of an
//     election that stood still, and its count would begin anew. Exclude the
//     object's prefix.
//   - A retention policy or an object hold keeps the record from being replaced:
//     every write is refused (403).
//   - Soft delete (on by default, 7 days) and object versioning keep each replaced
//     generation, and bill it: half a kilobyte per write, 87,000 writes a week.
//     Prefer a bucket that has neither, or versioning with a lifecycle rule that
//     deletes noncurrent versions.
//   - Nearline, Coldline and Archive as the default class bill each replaced
//     record for 30 days and more. Prefer Standard.
//
// # What is believed
//
// Anything may answer 200: a portal with a page, a cache with what the object was. A
// write counts only if the answer describes the object with the name, the length and the
// CRC32C of what was sent. A read counts only if it has a generation and the CRC32C of the
// content. An object counts as missing only if the JSON API says notFound: a bare 404 may
// be a proxy's. An error without a reason of Google's own may pass, whatever its status.
//
// Nothing in an answer binds the generation to the rest. Whatever joined an old answer
// with the newest generation would have a record replaced that nobody has seen. A cache
// that keeps whole answers does no harm: their generation is as old as their content.
//
// # Permissions
//
// storage.objects.get to read the record; storage.objects.create and
// storage.objects.delete to write it, since replacing an object deletes the old one. The
// role Storage Object User (roles/storage.objectUser) has them; an IAM condition on
// resource.name can hold it to the election's prefix. storage.objects.list is used once,
// if there is no object yet, to tell an empty election from a bucket that does not exist.
// Such a condition cannot grant it, since one lists a bucket and not an object: grant it
// apart, or do without, and a missing bucket is noticed by the first write.
// The command leaderelect doctor writes an object next to the record, whose name ends in
// "-doctor". An observer that never writes needs Storage
// Object Viewer (roles/storage.objectViewer). Setting Options.ACL or
// Options.PredefinedACL needs storage.objects.setIamPolicy as well; with
// Options.KMSKeyName it is Cloud Storage's service agent that needs Cloud KMS
// CryptoKey Encrypter/Decrypter on the key.
//
// With Options.EncryptionKey Google has the key during a request only. Whoever reads the
// record needs the same key, also with other tools (gcloud storage cat --decryption-keys);
// one that is lost takes the record with it. A candidate with another key, or none, can
// read nothing, and so replaces nothing.
//
// # Costs
//
// At the defaults (a term of 15 s, a skew of 1 s) a leader makes about 515 writes
// an hour, each a class A operation, and each standby 480 reads, each a class B
// operation (https://cloud.google.com/storage/pricing). In Standard storage in one
// region, at 0.005 USD per thousand class A and 0.0004 USD per thousand class B
// operations, that is about 1.90 USD a month for the leader and 0.14 USD for each
// standby. A longer term costs less in proportion.
//
// # Limits
//
// One object takes about one write a second
// (https://cloud.google.com/storage/quotas), and answers 429 beyond. At the
// defaults an election writes once in 7 s, and candidates write only when the
// record is free. With terms below 3 s or so, extensions alone come near the limit:
// do not do that here. A 429 is retried within the term. Bucket names have 3 to
// 222 characters, object names up to 1,024 bytes.
//
// # The store's time
//
// CommitTS of a token that WriteEntry returned is the object's Updated, in
// milliseconds at least; of one that ReadCurrent returned it is the Last-Modified
// header of the download, the same moment in whole seconds. To learn it more
// precisely would take a second request for each look.
//
// # Deadlines
//
// Each look and each write is one request, made once, within the ctx it is given (the
// first look is two, and so is one that finds the object gone):
// the client's own retries are switched off for the Decider's requests, whatever
// the client was made with, because the campaign retries, and knows how to find out
// what became of a write whose answer was lost. (A retry of the client's would meet
// its own write that had landed, and take it for a lost race.) Where a download
// breaks off in the middle, the client asks for the rest of that same generation.
//
// Giving up a request changes nothing at Google but that nobody hears the answer: a write
// happens as a whole or not at all, perhaps later, and what a read shows has been stored
// for good. An upload that is cut off in the middle makes no object.
//
// Clients of both of Google's transports will do: storage.NewClient, which is what
// the tests use, and storage.NewGRPCClient.
//
// # Connections that die silently
//
// A NAT, a firewall or a load balancer may forget a connection without telling anyone. The client
// of Open uses HTTP/1: a call that is given up closes its connection, and the next call
// makes a new one. With HTTP/2 all calls share one connection, and the next call is lost as well. So in
// a client of yours, give option.WithHTTPClient a client on a transport of yours
// (NewTransport of google.golang.org/api/transport/http adds the credentials), and set the
// http.Transport's HTTP2.SendPingTimeout and HTTP2.PingTimeout to one or two seconds. With gRPC use option.WithGRPCDialOption and grpc.WithKeepaliveParams; gRPC pings every
// 10 s at most.
package gcs
