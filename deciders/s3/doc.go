// Package s3 keeps an election in one object of an S3 bucket, at Amazon or at a server that speaks
// S3 and honors conditional writes.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	...
//	d := s3.NewDecider(awss3.NewFromConfig(cfg), "my-bucket", "elections/nightly", nil)
//
// The SDK reads static credentials of the shared files once. If yours are renewed there, give the
// client a provider of your own that reads them again. Open does so.
//
// # What is written where
//
// There is one object per election: the record as JSON, the same in every store. Its version is its
// ETag, of ordinary objects the MD5 of the content. No two records of an election are equal: each
// write raises the pair of election number and extension. An object of no bytes is damage, and is
// left alone.
//
// Never delete the object: it holds the fencing token's count. In a versioned bucket the delete
// marker shows that there was one, and candidates wait a term (RaceEntry.Emptied). In other buckets
// nothing shows it. Exempt the object from lifecycle rules that expire objects. Never restore an
// older version of it while candidates run: numbers would be given out again.
//
// # What the store promises
//
// A PutObject with If-None-Match: * creates the object only if there is none. With If-Match it
// replaces the object only while it has that ETag
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html). A refusal is
// 412, or 404 if the object was deleted. 409 ConditionalRequestConflict says that another request
// was under way, and that nothing was written: it is reported as a lost race. Reads see all earlier
// writes (https://docs.aws.amazon.com/AmazonS3/latest/userguide/Welcome.html#ConsistencyModel).
//
// An acknowledged write is stored in several zones (one, in the One Zone classes). No setting loses
// it within the bucket. Replication to a bucket in another region is asynchronous, so all
// candidates must use the same bucket. A multi-region access point is refused. The command
// leaderelect doctor (Decider.Durability) warns if replication has written the record or copies it,
// or if a lifecycle rule deletes it.
//
// # Servers that only look like S3
//
// A server that ignored If-Match or If-None-Match would let everybody lead. So if the client has an
// endpoint, a Decider tests the server with its first write: the server must then refuse two more
// writes of the same content, whose conditions do not hold. Otherwise it is refused for good.
//
// That it decides and writes in one step is for VerifyConditionalWrites to show: call it before you
// trust a server that is not Amazon's, and after each of its upgrades. What is known of servers:
//
//   - versitygw v1.8.0: sound; this package's tests run on it. One of its responses may have the
//     ETag of one version and the content of the next.
//   - MinIO (not tested): supports both conditions. A release of August 2025 took If-Match on a
//     missing object for true (https://github.com/minio/minio/issues/21526, since fixed). This is
//     harmless if nobody deletes the object.
//   - Cloudflare R2 (not tested): supports both conditions
//     (https://developers.cloudflare.com/r2/api/s3/conditional-operations/). It takes one write a
//     second on one object (https://developers.cloudflare.com/r2/platform/limits/). More get 429,
//     and are tried again. Do not make the term shorter than four seconds. Its region is "auto".
//   - Ceph RGW (not tested): answers 412, not 404, if the object is missing. Test your release: not
//     all may decide and write in one step.
//   - Amazon's directory buckets (S3 Express One Zone; not tested): support both conditions, keep
//     everything in one zone, and need s3express:CreateSession.
//   - Google Cloud Storage's XML API has headers of its own for this: use deciders/gcs.
//
// # What is believed
//
// A 200 may come from a portal, a cache, or a proxy that makes its own ETag. So a response must
// prove itself: its ETag is the MD5 of the content, which no two records share.
//
//   - A write counts if its response has the strong ETag that is the MD5 of what was sent.
//     Otherwise the object is read back, and the write counts if the read returns exactly what was
//     sent.
//   - A read counts if the ETag is the MD5 of the content. Otherwise a write could replace a record
//     that nobody has seen. A response that does not fit is requested again, since versitygw
//     sometimes joins two versions. After four of them the read fails with a temporary error.
//   - An object counts as missing if the server's error says NoSuchKey. A bare 404 may be a
//     proxy's. An error without one of the server's own codes counts as temporary.
//
// Under SSE-KMS, in directory buckets, and with Options.OpaqueETags, the ETag is something else.
// Each write is then read back. Under SSE-KMS a read counts as it is. In the other two cases it is
// repeated until two in a row have the same ETag: the second's content is then of that version or
// newer. Let no cache stand in front of such buckets: nothing would show that it joins an old
// content with the newest ETag.
//
// ETags are compared without their quotes, those of reads also without a weak prefix. They are sent
// in quotes. Options.UnquotedETag is for servers that want them bare. Many servers refuse the CRC32
// trailer that the SDK adds to uploads, so it is off unless Options.ChecksumAlgorithm asks for one.
// Uploads have a Content-MD5 instead, which these servers know.
//
// # Permissions
//
// Candidates need s3:PutObject and s3:GetObject on the object (a conditional write by ETag needs
// both), and s3:ListBucket on the bucket. Without the latter, S3 says 403 instead of 404 if the
// object does not exist yet. An observer does not need s3:PutObject.
//
// The command leaderelect doctor writes an object next to the record, whose key ends in "-doctor".
// For candidates of all elections below elections/, and for doctor:
//
//	{"Version": "2012-10-17", "Statement": [
//	  {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::my-bucket/elections/*"},
//	  {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::my-bucket"}]}
//
// Some features need more:
//
//   - VerifyConditionalWrites uses objects whose keys begin with the election's key and ".verify-".
//     It needs s3:PutObject, s3:GetObject and, to clean up, s3:DeleteObject on these.
//   - SSE-KMS needs kms:GenerateDataKey and kms:Decrypt on the key.
//   - An access point's policy must allow the same as the bucket's.
//
// A bucket policy with the condition keys s3:if-match and s3:if-none-match can refuse all
// unconditional writes.
//
// A policy can also demand a header of each write. For one that Options lack, such as a tag or an
// ACL, wrap the client: the example of Client does so.
//
// # Costs
//
// At the defaults (a term of 15 s, a skew of 1 s) a leader makes about 515 PUT requests an hour and
// each standby 480 GET requests, failed ones included. At 0.005 USD per thousand PUTs and 0.0004
// USD per thousand GETs (S3 Standard, us-east-1 in 2025) that is about 1.90 USD a month for the
// leader and 0.14 USD for each standby.
//
// In a versioned bucket each write leaves a version behind, some 12,000 a day: add a lifecycle rule
// that removes noncurrent versions after a day. Do not use the infrequent-access classes: they bill
// at least 128 KB and 30 days for each write.
//
// Under SSE-KMS each write is a PUT and a GET, and each request uses the key: at 0.03 USD per ten
// thousand uses, some 2.30 USD a month for the leader and 1.05 USD for each standby. An S3 Bucket
// Key on the bucket saves most of that
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucket-key.html).
//
// In a bucket with Object Lock and a default retention, each write leaves a version that nothing
// can delete until its retention is over: 4.4 million of them a year. Prefer a bucket without.
// Uploads have the Content-MD5 that such a bucket demands.
//
// # Limits
//
// A prefix takes 3,500 writes a second, far more than an election needs. A key has at most 1,024
// bytes.
//
// # The store's time
//
// CommitTS is Last-Modified for a version that was read, and the response's Date header for one
// just written. Both are in whole seconds.
//
// # Deadlines
//
// Each request is one attempt within its ctx. The client's own retries are not used: the campaign
// retries, and finds out what became of a write whose response was lost.
//
// A PutObject that is given up still happens as a whole or not at all, perhaps later. What a read
// shows is stored for good. An upload that is cut off makes no object.
//
// # Connections that die silently
//
// A NAT or a firewall may forget a connection without telling anyone. Open's client uses HTTP/1: a
// call that is given up closes its connection. With HTTP/2 all calls share one, so the next is lost
// as well. In a client of your own, set the http.Transport's HTTP2.SendPingTimeout and
// HTTP2.PingTimeout to one or two seconds, by WithTransportOptions of the SDK's
// awshttp.BuildableClient.
package s3
