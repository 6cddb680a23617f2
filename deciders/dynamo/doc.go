// Package dynamo keeps an election in one item of a DynamoDB table.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	...
//	d := dynamo.NewDecider(dynamodb.NewFromConfig(cfg), "elections", "reports/nightly", nil)
//
// The SDK reads static credentials of the shared files once. If yours are renewed there, give the
// client a provider of your own that reads them again. Open does so.
//
// # What is written where
//
// There is one item per election. Its partition key ("key", or as Options.PartitionKey says) is the
// election's name. If the table has a sort key, Options.SortKey names it, so you can use an
// existing table. Both keys must be strings. Apart from the key the item has two string attributes:
//
//	record   the record, as JSON: the same in every store
//	version  election number, extension and a random part; writes are conditional on it
//
// If the item has any other attribute, or lacks these, it is not ours: it is refused and never
// overwritten. The random part makes versions unique even if an item is deleted and the election
// begins again.
//
// Never delete an election's item: it holds the fencing token's count, and a deleted item leaves no
// sign. Nor can it expire. Even if a table has time to live enabled for its other items, DynamoDB
// expires only items whose attribute of that name is a Number
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-before-you-start.html).
// An election's item has none.
//
// # What the store promises
//
// An UpdateItem with a condition is one atomic step: it happens only if the condition holds at that
// moment
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/WorkingWithItems.html#WorkingWithItems.ConditionalUpdate).
// Reads are strongly consistent
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html).
// The refusal of a write that lost the race has the current item, which saves a read. Acknowledged
// writes are on several machines in several zones. Only restoring the table from a backup loses
// them, if the table is in one region.
//
// A server that imitates DynamoDB but takes no notice of conditions would let everybody lead. So if
// the client has an endpoint, a Decider tests the server with its first write: the server must then
// refuse two more writes of the same content, whose conditions do not hold.
//
// # Global tables
//
// With eventual consistency between regions (MREC, the default) each region decides conditions by
// itself, and later the last writer wins: candidates in two regions would both lead. Use such a
// table only if all candidates always use the same region. A failover of the application to another
// region breaks the promise. With strong consistency (MRSC) conditions hold in all regions
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html).
// VerifyTable tells the two apart, and so does the command leaderelect doctor (Decider.Durability),
// if it may describe the table. No response to a read or a write shows it.
//
// Give NewDecider the plain client, not a DAX cluster, whose responses do not prove themselves.
//
// # What is believed
//
// The SDK takes any response of status 200 for a success, even a portal's page. Here a response
// counts only if it has a request id and the checksum of its body, as all of DynamoDB's have. A
// write counts only if the response repeats the version that was sent (UpdateItem returns it at no
// cost). The version is new with each write, so no earlier response passes for it. Everything else
// is a temporary error, and so is an error without a request id, whatever its status.
//
// # Permissions
//
// On the table:
//
//   - dynamodb:GetItem for everybody;
//   - dynamodb:UpdateItem for candidates. Observers do not need it;
//   - dynamodb:CreateTable and dynamodb:DescribeTable for Options.CreateTable;
//   - dynamodb:DescribeTable for VerifyTable and leaderelect doctor.
//
// The command leaderelect doctor writes an item next to the record, whose key ends in "-doctor". An
// IAM policy can limit candidates to their election by the condition key dynamodb:LeadingKeys:
//
//	{"Version": "2012-10-17", "Statement": [{
//	  "Effect": "Allow", "Action": ["dynamodb:GetItem", "dynamodb:UpdateItem"],
//	  "Resource": "arn:aws:dynamodb:eu-central-1:111122223333:table/elections",
//	  "Condition": {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["reports/nightly", "reports/nightly-doctor"]}}}]}
//
// # Costs
//
// A record of ordinary size is below 1 KB: each write is one write request unit, and each read one
// read request unit (a strongly consistent read of up to 4 KB), even if the condition fails. At the
// defaults (a term of 15 s, a skew of 1 s) a leader makes about 515 writes an hour and each standby
// 480 reads. At on-demand prices of 0.625 USD per million writes and 0.125 USD per million reads
// (us-east-1 in 2025) that is about 0.24 USD a month for the leader and 0.05 USD for each standby.
//
// # Limits
//
// One item takes 1,000 writes and 3,000 read units a second, far more than an election needs. A
// throttled request is retried within the term. Table names have 3 to 255 of the characters a-z,
// A-Z, 0-9, '_', '-', '.'. A partition key has up to 2,048 bytes, a sort key up to 1,024.
//
// # The store's time
//
// A token from WriteEntry has the response's Date header as CommitTS, in whole seconds. A token
// from ReadCurrent has the zero time: DynamoDB does not say when it wrote an item.
//
// # Deadlines
//
// Each request is one attempt within its ctx. The client's own retries (which may take 40 s) are
// not used: the campaign retries, and finds out what became of a write whose response was lost.
//
// A request that is given up still happens as a whole or not at all, perhaps later. A record that a
// consistent read shows is stored for good: no read shows a write that is undone afterwards.
//
// # Connections that die silently
//
// A NAT or a firewall may forget a connection without telling anyone. Open's client uses HTTP/1: a
// call that is given up closes its connection. With HTTP/2 all calls share one, so the next is lost
// as well. In a client of your own, set the http.Transport's HTTP2.SendPingTimeout and
// HTTP2.PingTimeout to one or two seconds, by WithTransportOptions of the SDK's
// awshttp.BuildableClient.
package dynamo
