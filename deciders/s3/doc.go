// Package s3 keeps an election in one object of an S3 bucket, at Amazon or at a
// server that speaks S3 and honours conditional writes.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	...
//	d := s3.NewDecider(awss3.NewFromConfig(cfg), "my-bucket", "elections/nightly", nil)
//
// The SDK reads static credentials of the shared files once. If yours are renewed there, give the client
// a provider of your own that reads them again. Open does so.
//
// # What is written where
//
// One object per election: the record as JSON, the same in every store, with the
// content type application/json. Its version is its ETag. The ETag of ordinary
// objects is the MD5 of their content, so equal bytes have equal ETags; no two
// records of an election are equal, because each write raises the pair of
// election number and extension. Never delete the object: it holds the fencing
// token's count. In a versioned bucket the delete marker shows that there was one, and
// candidates wait a term (RaceEntry.Emptied); in others nothing does. An object of no bytes
// is damage, and left alone. Exempt it from lifecycle rules that expire objects. Nor restore an
// older version of it while candidates run: numbers would be given out again.
//
// # What the store promises
//
// A PutObject with If-None-Match: * creates the object only if there is none,
// and one with If-Match replaces it only while it has that ETag
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html);
// of several at once one succeeds. A refusal is 412, or 404 if the object was
// deleted. 409 ConditionalRequestConflict says that another request was under way;
// nothing was written, and Amazon's advice (fetch the ETag, try again) is what
// follows on a lost race, so it is reported as one. Reads see what was written
// before
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/Welcome.html#ConsistencyModel).
// An acknowledged write is stored in several zones (one, in the One Zone classes);
// no setting loses it within the bucket. A replica of the bucket in another region
// is another bucket: replication is asynchronous, so all candidates must use one
// and the same. A multi-region access point is refused. Whether replication has written the
// record here, or copies it from here, and whether a lifecycle rule deletes it, the answer to
// a read says: the command leaderelect doctor asks (Decider.Durability).
//
// # Servers that only look like S3
//
// A server that ignores If-Match or If-None-Match answers every write with
// success, and every candidate would lead. So if the client has an endpoint, the first write
// of a Decider counts only when the server has then refused two that it must refuse: they
// send the same content again, one on the condition that there is no object, one with an
// ETag that no object has. A server that accepts one of them is refused for good.
// This shows that conditions are honored, and not that the server decides and writes in one
// step: call VerifyConditionalWrites before
// trusting a server that is not Amazon's, and after each of its upgrades. Known
// to matter (what was only read about is marked so):
//
//   - versitygw v1.8.0: sound; this package's tests run on it.
//     An answer of versitygw may have the ETag of one version and the content of
//     the next.
//   - MinIO (not tested): supports both conditions. A release of August 2025
//     took If-Match on a missing object for true
//     (https://github.com/minio/minio/issues/21526, since mended), which is
//     harmless as long as nobody deletes the object.
//   - Cloudflare R2 (not tested): supports both conditions
//     (https://developers.cloudflare.com/r2/api/s3/conditional-operations/). It
//     takes one write a second on one object
//     (https://developers.cloudflare.com/r2/platform/limits/): more are 429, and
//     tried again; do not make the term shorter than four seconds. Its region is
//     "auto".
//   - Ceph RGW (not tested): answers 412, not 404, if the object is missing.
//     Whether a release decides and writes in one step, only a try can tell.
//   - Amazon's directory buckets (S3 Express One Zone; not tested): support both
//     conditions, keep everything in one zone, and need s3express:CreateSession.
//   - Google Cloud Storage's XML API has headers of its own for this: use
//     deciders/gcs.
//
// # What is believed
//
// Anything may answer 200: a portal with a page, a cache with what the object was, a
// proxy with an ETag of its own. So an answer must prove itself, and the proof is that
// the ETag is the MD5 of the content, which no two records share:
//
//   - A write counts if its answer has the strong ETag that is the MD5 of what was
//     sent. Otherwise the object is read back, and the write counts if the read
//     returns just what was sent.
//   - A read counts if the ETag is the MD5 of the content. A write by the ETag of a
//     later version would replace a record that nobody has seen. An answer that does
//     not fit is asked for again, since versitygw puts answers together from two
//     versions now and then; after four it is an error that may pass.
//   - An object counts as missing if the server's error says NoSuchKey. A bare 404 may
//     be a proxy's. An error without a code of the server's own may pass.
//
// If the answer says that SSE-KMS or SSE-C is in use, its ETag is something else.
// Each write is read back then, and reads are taken as they come. The same holds for
// directory buckets, and with Options.OpaqueETags for servers whose ETags are no MD5s,
// save that their reads are asked for again until two in a row have the same ETag: the
// second's content then is of that version or newer. On such buckets an old content
// that always comes with the newest ETag cannot be found out, so let no cache stand
// before them.
//
// ETags are compared without their quotes, those of reads also without a weak prefix,
// and sent in quotes; Options.UnquotedETag is for servers that want them bare. The
// SDK's default of adding a CRC32 trailer to uploads, which many servers refuse, is
// switched off for these requests unless Options.ChecksumAlgorithm asks for one. Uploads
// have a Content-MD5 in its place, which is older and which these servers know.
//
// # Permissions
//
// s3:PutObject and s3:GetObject on the object (a conditional write by ETag needs
// both), and s3:ListBucket on the bucket: without it, S3 says 403 instead of 404
// if the object does not exist yet. VerifyConditionalWrites writes, reads and
// deletes objects whose keys begin with the election's key and ".verify-": it
// needs s3:PutObject, s3:GetObject and, to leave nothing behind, s3:DeleteObject
// on these. With SSE-KMS also kms:GenerateDataKey and kms:Decrypt on the key. A
// bucket policy with the condition keys s3:if-match and s3:if-none-match can
// refuse all unconditional writes. Options.Tags take s3:PutObjectTagging. Through an
// access point its policy must allow the same as the bucket's. An observer needs no
// s3:PutObject. The command leaderelect doctor writes an object next to the record, whose key
// ends in "-doctor". For candidates of all elections below elections/, and for doctor:
//
//	{"Version": "2012-10-17", "Statement": [
//	  {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::my-bucket/elections/*"},
//	  {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::my-bucket"}]}
//
// With Options.SSECustomerKey (SSE-C) the server has the key during a request only. Whoever
// reads the record needs the same key, also with other tools; one that is lost takes the
// record with it. An answer that does not say that this key was used counts for nothing.
// A candidate with another key, or none, can read nothing, and so replaces nothing. To
// change the key stop all candidates, and copy the object from one key to the other.
//
// # Costs
//
// At the defaults (a term of 15 s, a skew of 1 s) a leader makes about 515 PUT
// requests an hour and each standby 480 GET requests, failed ones included. At
// 0.005 USD per thousand PUTs and 0.0004 USD per thousand GETs (S3 Standard,
// us-east-1 in 2025) that is about 1.90 USD a month for the leader and 0.14 USD
// for each standby. In a versioned bucket each write leaves a version behind,
// some 12,000 a day: add a lifecycle rule that removes noncurrent versions after a
// day. The infrequent-access classes bill at least 128 KB and 30 days for each
// write: do not use them.
//
// Under SSE-KMS each write is a PUT and a GET, and each request uses the key: at
// 0.03 USD per ten thousand uses, some 2.30 USD a month for the leader and 1.05 USD for
// each standby. An S3 Bucket Key on the bucket takes most of that away
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucket-key.html).
//
// In a bucket with Object Lock and a default retention, each write leaves a version
// that nothing can delete until its retention is over: 4.4 million of them a year. New
// versions can be written all the same: uploads have the Content-MD5 that such a bucket
// demands. Prefer a bucket without.
//
// # Limits
//
// A prefix takes 3,500 writes a second, far more than an election needs. A key has
// at most 1,024 bytes.
//
// # The store's time
//
// CommitTS is Last-Modified for a version that was read, and the answer's Date
// header for one just written: whole seconds, both.
//
// # Deadlines
//
// Each request is one attempt within the ctx it is given: the client's own
// retries are switched off for these requests, whatever the client was configured
// with, because the campaign retries and knows how to find out what became of a
// write whose answer was lost.
//
// Giving up a request changes nothing at the server but that nobody hears the answer:
// a PutObject happens as a whole or not at all, perhaps later, and what a read shows has
// been stored for good. An upload that is cut off in the middle makes no object.
//
// # Connections that die silently
//
// A NAT, a firewall or a load balancer may forget a connection without telling anyone. The client
// of Open uses HTTP/1: a call that is given up closes its connection, and the next call
// makes a new one. With HTTP/2 all calls share one connection, and the next call is lost as well. So in
// a client of yours, ping: set the http.Transport's HTTP2.SendPingTimeout and
// HTTP2.PingTimeout to one or two seconds. The way to the transport is
// WithTransportOptions of the SDK's awshttp.BuildableClient.
package s3
