// Package azblob keeps an election in one blob of an Azure storage account. It needs no server of
// yours.
//
//	credential, err := azidentity.NewDefaultAzureCredential(nil)
//	...
//	client, err := azblob.NewClient("https://account.blob.core.windows.net/", credential, nil) // the SDK's
//	...
//	d := azblob.NewDecider(client, "elections", "nightly", nil)
//
// # What is written where
//
// There is one block blob per election, at the name that you give to NewDecider. Its content is the
// record, as JSON, the same in every store. Any other content is refused and never overwritten. A
// blob of no bytes is damage, and is left alone.
//
// Never delete the blob: even if nobody leads, it holds the fencing token's count. A deleted blob
// leaves no sign for a read. Never restore an older version of it while candidates run: numbers
// would be given out again.
//
// A server that imitates Azure's API but takes no notice of conditions would let everybody lead. So
// if the account's URL is not of one of Azure's clouds, a Decider tests the server with its first
// write: the server must then refuse two more writes of the same content, whose conditions do not
// hold.
//
// # What the store promises
//
// A Put Blob with If-Match happens only if the blob's ETag is the one given. With If-None-Match: *
// it happens only if there is no blob. Otherwise it fails with 412 or 409
// (https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations).
// Reads see the last write. Every write makes a new ETag. Acknowledged writes are on three devices
// of the primary region, in three zones with ZRS
// (https://learn.microsoft.com/azure/storage/common/storage-redundancy).
//
// These put an election at risk. The command leaderelect doctor reports those that a response shows
// (Decider.Durability):
//
//   - With GRS or GZRS the second region lags behind. If the account fails over to it, the last
//     writes are lost: the election goes back some minutes. Never give the Decider a client of the
//     secondary endpoint (account-secondary).
//   - A lifecycle rule that deletes by age can delete the record of an election in which nothing
//     happens. Its count then starts again. A rule that moves it to the archive makes it
//     unreadable. Exclude the blob's prefix.
//   - An immutability policy or a legal hold prevents the record from being replaced: every write
//     is refused (409).
//   - Blob versioning and soft delete keep and bill what each write replaces: half a kilobyte,
//     87,000 times a week. Prefer an account or a container without.
//
// # Native leases
//
// Azure has leases of its own. They do not decide this election, but Azure enforces them against
// everybody. A leader may hold them in addition: see package azlease.
//
// # What is believed
//
// A 200 or 201 may come from a portal or a cache. Azure's responses to a Put Blob, and to a Get
// Blob of the whole, have the MD5 of the content, which no two records share. A write counts only
// if that is the MD5 of what was sent, and a read only if it is that of what arrived. A blob counts
// as missing only if the error has the code BlobNotFound. Everything else is a temporary error,
// even an error status without one of Azure's codes. (If an operator uploads a record by blocks, it
// has no MD5 and cannot be read: upload it in one piece.)
//
// Nothing in a response binds the ETag to the rest. So let no proxy join an old response with the
// newest ETag: a record would be replaced that nobody has seen. A cache that keeps whole responses
// does no harm: its ETag is as old as its content.
//
// # Permissions
//
// Candidates need Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read and
// .../blobs/write, which also covers leases. Options.CreateContainer also needs
// Microsoft.Storage/storageAccounts/blobServices/containers/write. The role Storage Blob Data
// Contributor on the container has them. Storage Blob Data Reader is enough for an observer. A
// shared access signature needs read, create and write (sp=rcw).
//
// The command leaderelect doctor writes a blob next to the record, whose name ends in "-doctor". A
// signature for the one blob is not enough for that.
//
// # Costs
//
// At the defaults (a term of 15 s, a skew of 1 s) a leader makes about 515 write operations an
// hour, and each standby 480 read operations
// (https://azure.microsoft.com/pricing/details/storage/blobs/). In the hot tier with local
// redundancy, at 0.05 USD per ten thousand writes and 0.004 USD per ten thousand reads, that is
// about 1.90 USD a month for the leader and 0.14 USD for each standby. Renewing a native lease is
// billed as one of "all other operations", at the price of a read. Premium block blobs cost less
// per write. The cool and cold tiers bill each replaced record for 30 days and more.
//
// # Limits
//
// One blob takes up to 500 requests a second
// (https://learn.microsoft.com/azure/storage/blobs/scalability-targets), far more than an election
// needs. Container names have 3 to 63 characters, blob names up to 1,024.
//
// # The store's time
//
// CommitTS is the Last-Modified header of the response, in whole seconds, for reads and writes
// alike.
//
// # Deadlines
//
// Each look and each write is one request, made once, within its ctx. The client's own retries
// (which may take minutes) are not used: the campaign retries, and finds out what became of a write
// whose response was lost.
//
// A Put Blob that is given up still happens as a whole or not at all, perhaps later. What a read
// shows is stored for good.
//
// # Connections that die silently
//
// A NAT or a firewall may forget a connection without telling anyone. Open's client uses HTTP/1: a
// call that is given up closes its connection. With HTTP/2 all calls share one, so the next is lost
// as well. In a client of your own, set the http.Transport's HTTP2.SendPingTimeout and
// HTTP2.PingTimeout to one or two seconds. The transport's client goes into
// azcore.ClientOptions.Transport.
package azblob
