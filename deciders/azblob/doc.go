// Package azblob keeps an election in one blob of an Azure storage account: a
// store that whoever runs on Azure has, and that needs no server.
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
// version of it while candidates run: numbers would be given out again.
//
// # What the store promises
//
// A Put Blob with If-Match happens only if the blob's ETag is the one given, and
// one with If-None-Match: * only if there is no blob; else it fails with 412 or 409
// (https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations).
// Reads see the last write. Every write makes a new ETag. Acknowledged writes are
// on three devices of the primary region, in three zones with ZRS
// (https://learn.microsoft.com/azure/storage/common/storage-redundancy). What puts
// an election at risk:
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
// Azure knows leases of its own: for 15 to 60 s only requests that name the lease's
// id may write or delete a blob
// (https://learn.microsoft.com/rest/api/storageservices/lease-blob). They do not
// decide this election, for they know neither a fencing token nor when it is safe
// to act. But Azure enforces them against everybody, also against programs that
// know nothing of elections, and that is what Options.NativeLease is for: the
// leader leases the record's blob and the companions, the blobs that only the leader
// may change, renews the leases with each extension, and gives them up with its
// release.
//
//	d := azblob.NewDecider(client, "elections", "nightly", &azblob.Options{
//		NativeLease: &azblob.NativeLease{Companions: []string{"nightly/report"}},
//	})
//	...
//	OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
//		only, err := d.Leased(view, "nightly/report")
//		...
//		client.UploadBuffer(ctx, "elections", "nightly/report", report, &azblob.UploadBufferOptions{
//			AccessConditions: &blob.AccessConditions{LeaseAccessConditions: only},
//		})
//	}
//
// The lease's id follows from the leadership: a request that a deposed leader sent, and
// that arrives when its successor has taken over, names another id, and Azure
// refuses it. A successor that has won the record breaks or releases the old
// leader's leases and takes them itself; a companion that somebody else has leased
// is waited for, and Leased returns an error for that blob until then. A lease that somebody
// breaks is noticed by the next extension, and taken again when Azure allows it; until
// then Azure itself refuses what names it. NativeLease.Changed hears of each lease that was
// acquired or lost. Every writer of the record
// works out the leader's id from the record and names it, so operators can ask for
// a hand-over while a lease is held, also with a Decider that has no NativeLease.
// That the record's own blob is leased keeps it from being deleted by mistake. The
// leases come after the record, and trouble with them never costs the leader its
// leadership.
//
// Single blobs are locked by Decider.AcquireLease, which takes the lease at once and has it renewed,
// ReleaseLease, and BreakLease, for what somebody else has left leased.
//
// One renewal per blob is added to each extension: with two companions an extension
// is four requests. A lease of another that is found on the record's blob is broken.
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
// (sp=rcw). The command leaderelect doctor writes a blob beside the record, whose name ends
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
package azblob
