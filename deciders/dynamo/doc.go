// Package dynamo keeps an election in one item of a DynamoDB table: a store for
// candidates that run on AWS and have no other in common.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	...
//	d := dynamo.NewDecider(dynamodb.NewFromConfig(cfg), "elections", "reports/nightly", nil)
//
// The SDK reads static credentials of the shared files once. If yours are renewed there, give the client
// a provider of your own that reads them again. Open does so.
//
// # What is written where
//
// One item per election. Its partition key ("key", or what Options.PartitionKey
// says) is the election's name; if the table has a sort key, Options.SortKey
// names it, so that a table that is there already can serve. Both keys must be
// strings. Apart from the key the item has two attributes, strings both:
//
//	record   the record, as JSON: the same in every store
//	version  election number, extension and a random part; what writes are conditional on
//
// An item at that key with any other attribute is not ours, and is refused
// rather than overwritten; so is one without them. A deleted item leaves no sign. The random
// part makes versions unique even if an
// item is deleted and the election begins again.
//
// No attribute is an expiry: a lease must outlive the store's idea of tidiness,
// because the record holds the fencing token's count. A table may have time to
// live enabled for its other items: DynamoDB expires only items whose attribute
// of that name is a Number
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-before-you-start.html),
// and an election's item has none. Never delete an election's item.
//
// # What the store promises
//
// An UpdateItem with a condition is one atomic step: it happens only if the
// condition holds at that moment
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/WorkingWithItems.html#WorkingWithItems.ConditionalUpdate).
// Reads are strongly consistent ones
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html),
// and a write that lost the race brings the item that it lost to along, which
// saves the read. Acknowledged writes are on several machines in several zones;
// no setting of a table in one region loses them, save restoring the table from
// a backup.
//
// Other servers speak DynamoDB's API. An imitation that takes no
// notice of conditions would have everybody lead. So if the client has an endpoint
// the first write of a Decider counts only when the server has refused two that it must
// refuse: they send the same content again on a condition that does not hold.
//
// Global tables are another matter. With eventual consistency between regions
// (MREC, the default) each region decides conditions for itself and the last
// writer wins afterwards: candidates in two regions would both lead. Use such a
// table only if all candidates use the same region, for good; a failover of
// the application to another region breaks the promise. With strong consistency
// (MRSC) conditions hold in all regions
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html).
// VerifyTable tells the two apart, and so does the command leaderelect doctor
// (Decider.Durability), if it may describe the table. No answer to a read or a write
// does. A DAX cluster passes on what is conditional or strongly consistent, and all
// requests here are. So all that it adds is an answer that does not prove itself: give
// NewDecider the plain client.
//
// # What is believed
//
// The SDK takes any answer of status 200 for a success: the page of a portal, the
// empty answer of a load balancer. Here an answer counts only if it has a request id
// and the checksum of its body, as all of DynamoDB's have, so that nothing else can say
// that an election is empty. A write counts only if the answer repeats the version
// that was sent (UpdateItem returns it at no cost), which is new with each write, so
// that no earlier answer can be taken for this one's. What fails this is an error that
// may pass. So is an error that has no request id, whatever its status.
//
// # Permissions
//
// On the table: dynamodb:GetItem and dynamodb:UpdateItem. With Options.CreateTable
// also dynamodb:CreateTable and dynamodb:DescribeTable; VerifyTable and
// leaderelect doctor need dynamodb:DescribeTable. An observer needs no dynamodb:UpdateItem. The command leaderelect
// doctor writes an item next to the record, whose key ends in "-doctor". An IAM policy can
// hold candidates to their election by the condition key dynamodb:LeadingKeys:
//
//	{"Version": "2012-10-17", "Statement": [{
//	  "Effect": "Allow", "Action": ["dynamodb:GetItem", "dynamodb:UpdateItem"],
//	  "Resource": "arn:aws:dynamodb:eu-central-1:111122223333:table/elections",
//	  "Condition": {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["reports/nightly", "reports/nightly-doctor"]}}}]}
//
// # Costs
//
// A record of ordinary size is below 1 KB: each write is one write request unit,
// and each read one read request unit (a strongly consistent read of up to 4
// KB), even if the condition fails. At the defaults (a term of 15 s, a skew of
// 1 s) a leader makes about 515 writes an hour and each standby 480 reads. At
// on-demand prices of 0.625 USD per million writes and 0.125 USD per million
// reads (us-east-1 in 2025) that is about 0.24 USD a month for the leader and
// 0.05 USD for each standby.
//
// # Limits
//
// One item takes 1,000 writes and 3,000 read units a second, far more than an
// election needs. A provisioned table that its other users exhaust throttles the
// leader, too: such refusals are retried within the term. Table names have 3 to
// 255 of the characters a-z, A-Z, 0-9, '_', '-', '.'; a partition key has up to
// 2,048 bytes, a sort key up to 1,024.
//
// # The store's time
//
// CommitTS of a token that WriteEntry returned is the answer's Date header, in
// whole seconds. DynamoDB does not say when it wrote an item that is read: there
// it is the zero time.
//
// # Deadlines
//
// Each request is one attempt within the ctx it is given: the client's own
// retries (which may take 40 s) are switched off for these requests, whatever the
// client was configured with, because the campaign retries and knows how to find
// out what became of a write whose answer was lost.
//
// Giving up a request changes nothing at DynamoDB but that nobody hears the answer: it
// happens as a whole or not at all, perhaps later, and what a consistent read shows has
// been stored for good. A read never shows a write that is undone afterwards.
//
// # Connections that die silently
//
// A NAT, a firewall or a load balancer may forget a connection without telling anyone. The client
// of Open uses HTTP/1: a call that is given up closes its connection, and the next call
// makes a new one. With HTTP/2 all calls share one connection, and the next call is lost as well. So in
// a client of yours, ping: set the http.Transport's HTTP2.SendPingTimeout and
// HTTP2.PingTimeout to one or two seconds. The way to the transport is
// WithTransportOptions of the SDK's awshttp.BuildableClient.
package dynamo
