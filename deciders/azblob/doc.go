// Package azblob keeps an election in one blob of an Azure storage account: a
// store that every user of Azure has, and that needs no server.
//
//	credential, err := azidentity.NewDefaultAzureCredential(nil)
//	...
//	client, err := azblob.NewClient("https://account.blob.core.windows.net/", credential, nil) // the SDK's
//	...
//	d := azblob.NewDecider(client, "elections", "nightly", nil)
//
// # What is written where
//
// One block blob per election, at the name that NewDecider is given. Its content
// is the record, as JSON, the same in every store; "az storage blob download" shows
// it. A blob at that name whose content is anything else is not ours, and is
// refused rather than overwritten. Nothing is ever deleted: the record of an
// election that nobody leads holds the fencing token's count. Nor restore an older
// version of it while candidates run: numbers would be given out again. A deleted blob
// leaves no sign for a read; a blob of no bytes is damage, and left alone.
//
// Other servers speak Azure's API, such as Azurite. An imitation that takes no
// notice of conditions would have everybody lead. So if the account's URL is not of one of Azure's clouds
// the first write of a Decider counts only when the server has refused two that it must
// refuse: they send the same content again on a condition that does not hold.
//
// # What the store promises
//
// A Put Blob with If-Match happens only if the blob's ETag is the one given, and
// one with If-None-Match: * only if there is no blob; else it fails with 412 or 409
// (https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations).
// Reads see the last write. Every write makes a new ETag. Acknowledged writes are
// on three devices of the primary region, in three zones with ZRS
// (https://learn.microsoft.com/azure/storage/common/storage-redundancy). These
// put an election at risk. The command leaderelect doctor asks for those that an answer
// shows (Decider.Durability):
//
//   - With GRS or GZRS the second region lags behind. An account that fails over to
//     it loses the last writes: the election is as it was some minutes before. Never
//     give the Decider a client of the secondary endpoint (account-secondary).
//   - A lifecycle rule that deletes by age would one day delete the record of an
//     election that stood still, and its count would begin anew; one that moves it
//     to the archive makes it unreadable. Exclude the blob's prefix.
//   - An immutability policy or a legal hold keeps the record from being replaced:
//     every write is refused (409).
//   - Blob versioning and soft delete keep what each write replaces, and bill it:
//     half a kilobyte, 87,000 times a week. Prefer an account or a container
//     without.
//
// # Native leases
//
// Azure knows leases of its own. They do not decide this election, but Azure enforces them
// against everybody, and a leader may hold them besides: see package azlease.
//
// # What is believed
//
// Anything may answer 200 or 201: a portal with a page, a cache with what the blob was.
// Azure's answers to a Put Blob, and to a Get Blob of the whole, have the MD5 of the
// content, which no two records share. A write counts only if that is the MD5 of what was
// sent, and a read only if it is that of what came. A blob counts as missing only if the
// error has the code BlobNotFound; an error without a code of Azure's may pass, whatever
// its status. What fails this is an error that may pass. (A record that an operator
// uploads by blocks has no MD5, and cannot be read: upload it in one piece.)
//
// Nothing in an answer binds the ETag to the rest. Whatever joined an old answer with the
// newest ETag would have a record replaced that nobody has seen. A cache that keeps
// whole answers does no harm: its ETag is as old as its content.
//
// # Permissions
//
// Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read and
// .../blobs/write, which also covers leases; with Options.CreateContainer
// Microsoft.Storage/storageAccounts/blobServices/containers/write. The role Storage
// Blob Data Contributor on the container has them, Storage Blob Data Reader is
// enough for an observer. A shared access signature needs read, create and write
// (sp=rcw). The command leaderelect doctor writes a blob next to the record, whose name ends
// in "-doctor": a signature for the one blob is not enough for that.
//
// # Costs
//
// At the defaults (a term of 15 s, a skew of 1 s) a leader makes about 515 write
// operations an hour, and each standby 480 read operations
// (https://azure.microsoft.com/pricing/details/storage/blobs/). In the hot tier with
// local redundancy, at 0.05 USD per ten thousand writes and 0.004 USD per ten
// thousand reads, that is about 1.90 USD a month for the leader and 0.14 USD for each
// standby. Renewing a native lease is billed as one of "all other operations", at
// the price of a read. Premium block blobs cost less per write. The cool and cold
// tiers bill each replaced record for 30 days and more.
//
// # Limits
//
// One blob takes up to 500 requests a second
// (https://learn.microsoft.com/azure/storage/blobs/scalability-targets), far more than
// an election needs; an account that its other users exhaust answers 503, which is
// retried within the term. Container names have 3 to 63 characters, blob names up to
// 1,024.
//
// # The store's time
//
// CommitTS is the Last-Modified header of the answer, in whole seconds, for reads and
// writes alike.
//
// # Deadlines
//
// Each look and each write is one request, made once, within the ctx it is given: the
// client's own retries (which may take minutes) are switched off for the Decider's
// requests, whatever the client was made with, because the campaign retries, and knows
// how to find out what became of a write whose answer was lost.
//
// Giving up a request changes nothing at Azure but that nobody hears the answer: a Put
// Blob happens as a whole or not at all, perhaps later, and what a read shows has been
// stored for good.
//
// # Connections that die silently
//
// A NAT, a firewall or a load balancer may forget a connection without telling anyone. The client
// of Open uses HTTP/1: a call that is given up closes its connection, and the next call
// makes a new one. With HTTP/2 all calls share one connection, and the next call is lost as well. So in
// a client of yours, ping: set the http.Transport's HTTP2.SendPingTimeout and
// HTTP2.PingTimeout to one or two seconds. The transport's client goes into
// azcore.ClientOptions.Transport.
package azblob
