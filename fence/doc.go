/*
Package fence is the resource's side of leader election: it keeps a deposed
leader's late writes out.

No lease can do that alone. A leader asks its view, finds that it may act, and is
then stopped by its garbage collector, its hypervisor or its network for longer
than its term; when its request goes out, or arrives, another one leads. So each
request carries a fencing token, the [leaderelection.ElectionNumber] of the leadership
that it belongs to, and the resource refuses any token smaller than the greatest
that it has seen. (Martin Kleppmann, "How to do distributed locking", 2016.)

The writer binds its work to a leadership once, and sends it through a [Transport]:

	OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
		ctx = fence.NewContext(ctx, fence.Gate{View: view, Election: "orders"})
		req, _ := http.NewRequestWithContext(ctx, "PUT", url, body)
		client.Do(req) // with Transport: &fence.Transport{}
	}

The Transport is a write gate as well: it does not send once the view has ended,
also if the request has had to wait for a connection, nor let go more of a body that
is under way. The resource puts a [Guard] in front
of its handlers:

	guard := fence.NewGuard("orders", 0)
	http.Handle("/orders/", fence.Require(guard, nil)(handler))

A shard of package shard is fenced under a name of its own: [ForShard] makes the Gate of
its owner, and the resource has a Guard, or a row, by [ShardName].

# A guard must be as durable as what it guards

A Guard remembers the greatest token for as long as its process lives. That is
right for what lives in the process as well, and not for a database: there the
check belongs into the write itself, as one atomic step, where neither a restart
nor a second server in front of the same data comes between them. The packages
below do so:

	fencesql     a condition in a row, or a table of tokens: PostgreSQL, MySQL, SQLite
	fenceredis   a script
	fencedynamo  a condition expression
	fencegcs     object metadata and preconditions: Google Cloud Storage
	fences3      object metadata and conditional writes: S3
	fenceazure   blob metadata and conditional writes: Azure

The program examples/fencing shows one at work: a leader that is stopped past its
term, and whose late write PostgreSQL refuses.

Between a Guard's check and the act that follows there is the same gap again: a
greater token may be admitted while the earlier request is still at work. Where
that matters, act inside [Guard.Do].

# Who may raise a fence

A token says which leadership a request belongs to. It is no proof: anybody can write
a header. And a fence never goes back, so one forged token that is great enough shuts
out every leader, until somebody sets the fence back by hand. So:

  - Put authentication in front of [Require], so that only the candidates' own
    requests reach it (mutual TLS, a service mesh, a bearer token checked by a
    middleware around Require). Not behind it: what it refuses it has judged by then.
  - Set [Guard.Confirm], to [ConfirmBy] of the election's decider, if the resource can
    read the record: then no token is admitted that the election has not reached.
  - Let no token in from outside. lehttp.Proxy removes the header from the requests
    that it passes on; have your own proxies do so.

What only reads raises nothing: Require judges the tokens of safe methods (GET, HEAD,
OPTIONS, TRACE) without remembering them. Numbers from 2^63 are no tokens.

# What fencing does not do

The first write of a new leader is what shuts out the old one: until the resource
has seen the new token, it takes the old one for good. So a leader that must not
be disturbed announces itself by a write, or by [Guard.Admit], before it reads
what it will go by. And a token says who may write, not that it was written once:
a request that is sent twice is admitted twice.
*/
package fence
