/*
Package fence is for a resource that only the leader may write to. It keeps out the late writes
of a leader that has been deposed.

No lease can do that alone. A leader asks its view, and finds that it may act. Then its garbage
collector, its hypervisor or its network stops it for longer than its term. When its request
goes out, or arrives, another candidate leads. So each request carries a fencing token, the
[leaderelection.ElectionNumber] of the leadership that it belongs to. The resource refuses any
token smaller than the greatest it has seen. (Martin Kleppmann, "How to do distributed
locking", 2016.)

The writer binds its work to a leadership once, and sends it through a [Transport]:

	OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
		ctx = fence.WithGate(ctx, fence.Gate{View: view, Election: "orders"})
		req, _ := http.NewRequestWithContext(ctx, "PUT", url, body)
		client.Do(req) // with Transport: &fence.Transport{}
	}

The Transport is a write gate as well. Once the view has ended it sends no request, even one
that has waited for a connection, and no more of a body that is under way. The resource puts a
[Guard] in front of its handlers:

	guard := fence.NewGuard("orders", 0)
	http.Handle("/orders/", fence.Require(guard, nil)(handler))

A shard of package shard is fenced under its own name, such as "orders/7". Its owner gets the
Gate from shard.Owned, and the resource has a Guard, or a row, for each shard.

# A guard must be as durable as what it guards

A Guard remembers the greatest token for as long as its process lives. That is enough for data
that lives in the same process, and not for a database. There the check belongs into the
write itself, as one atomic step, so that neither a restart nor a second server in front of the
same data comes between them. The packages below do so:

	fencesql     a condition in a row, or a table of tokens: PostgreSQL, MySQL, SQLite
	fenceredis   a script
	fencedynamo  a condition expression
	fencegcs     object metadata and preconditions: Google Cloud Storage
	fences3      object metadata and conditional writes: S3
	fenceazure   blob metadata and conditional writes: Azure

The Example of fencesql's Table.Do shows one of them: the database refuses the write of a
leader that comes too late.

Between a Guard's check and the act that follows there is the same gap again: a greater token
may be admitted while the earlier request is still at work. If that matters, act inside
[Guard.Do].

# Who may raise a fence

A token says which leadership a request belongs to. It does not prove it: anybody can write a
header. And a fence never goes back. So one forged token that is great enough shuts out every
leader, until somebody sets the fence back by hand. Therefore:

  - Put authentication in front of [Require], so that only the candidates' own requests reach
    it (mutual TLS, a service mesh, a bearer token checked by a middleware around Require).
    Authentication behind Require is too late: Require has remembered the token by then.
  - Set [Guard.Confirm] to [ConfirmBy] of the election's decider, if the resource can read the
    record. Then no token is admitted that the election has not reached.
  - Let no token in from outside. lehttp.Proxy removes the header from the requests that it
    passes on; make your own proxies do the same.

Reads raise nothing: Require judges the tokens of safe methods (GET, HEAD, OPTIONS, TRACE)
without remembering them. A number from 2^63 is not a token, nor is one
without its election's name: no fence admits them.

# What fencing does not do

The first write of a new leader shuts out the old leader. Until the resource has seen the new
token, it accepts the old one. So a leader that must not be disturbed first makes a write, or
calls [Guard.Check], and only then reads the data that it relies on. And a token says which
leadership may write, not that a write happens once: a request that is sent twice is admitted
twice.
*/
package fence
