/*
Package lehttp brings HTTP requests to the leader of an election, and makes sure that only the
leader answers them.

A candidate publishes its address by the HostPort of its Config, or by Campaign.Announce once it
listens. Without an address nobody finds it.

Use it on both sides. The process that serves a request may no longer lead when it answers,
whatever its caller knew. [RequireLeader] is a middleware that serves while the view lasts, and
asks the view again before an answer leaves.

	mux.Handle("/", lehttp.RequireLeader(campaign, nil)(app))
	mux.Handle("/election/", http.StripPrefix("/election", lehttp.Probes(campaign, nil)))

The process that sends a request must find the leader. A [Router] follows the election.
[Router.Proxy] is a handler that passes requests on, [Router.Redirect] one that sends clients to
the leader with 307.

	router, err := lehttp.Follow(leaderelection.WatchConfig{Decider: decider})
	...
	http.ListenAndServe(":8080", router.Proxy(nil))

A handler takes its fencing token from the view of the leadership under which its request was
admitted, by [leaderelection.ViewFrom]:

	token := leaderelection.ViewFrom(r.Context()).ElectionNumber()

Both sides together make a service of hot standbys. Clients may ask any of them:

	router, err := lehttp.Follow(leaderelection.WatchConfig{Decider: decider})
	...
	defer router.Close()
	elsewhere := router.Proxy(&lehttp.ProxyOptions{LeaderID: config.LeaderID})
	campaign, err := config.Start(ctx)
	...
	handler := lehttp.RequireLeader(campaign, &lehttp.RequireOptions{Otherwise: elsewhere})(app)
	err = lehttp.Serve(ctx, campaign, &http.Server{Handler: handler}, listener, nil)

The router reads the store for itself, and outlives the campaign: a request that comes while the
process ends still finds the next leader. [Serve] ends the server when that can cost no request.

# Shards

If package shard divides the work, a request goes to the owner of its shard. [RequireOwner] is
RequireLeader for shards, and a [ShardRouter] finds their owners:

	shardOf := lehttp.ShardKey(64, func(r *http.Request) string { return r.PathValue("customer") })
	mux.Handle("/orders/{customer}", lehttp.RequireOwner(member, shardOf, nil)(app)) // at each member

	router, err := lehttp.FollowShards(shard.WatchConfig{Store: store}) // in a process that passes requests on
	...
	mux.Handle("/orders/{customer}", router.Proxy(shardOf, nil))

A handler gets the shard, and its fencing token, by [shard.OwnedFrom]. Everything that is said
here of leaders is true of owners. A request is kept while its shard moves, and sent again only
if nobody has worked on it. A refusal is for one shard, and says nothing about other shards.

# Whom to trust

A router's knowledge may be out of date, so it is a hint. RequireLeader makes the promise, at the
other end. It refuses a request that reaches a process which no longer leads. By the header of
that refusal a Proxy knows that nobody has worked on the request, and that it may go to the next
leader, whatever its method. A leader without RequireLeader serves every request that reaches it.

Only RequireLeader may set that header: it removes one that its handler has relayed. A leader
without RequireLeader may relay one from a service behind another election. So give elections
names if requests pass through several (RequireOptions.Election, ProxyOptions.Election).

Anybody who can write the election's record decides where a Proxy sends requests, with their
cookies and credentials. ProxyOptions.CheckAddress says which addresses are allowed.

A Proxy believes nothing that a client says about itself. It replaces X-Forwarded-For, -Host and
-Proto. It removes Fencing-Token, so that no outsider can raise a fence, and these headers with
underscores, such as Fencing_Token, which some servers take for the same. ProxyOptions.Rewrite may
put back what a proxy of yours has sent. The Proxy's own answers name no candidate and no address:
those are in the log.

# Several ports, TLS, dead connections

A candidate that serves several things has one record for all of them. ProxyOptions.Addresses
chooses the right address, by [Port] or by a [Named] address in ConnectionParams. The chosen
address must pass CheckAddress, like a HostPort. A Proxy follows what a leader announces while
it leads (Campaign.Announce).

ProxyOptions.TLS has the TLS settings for https. With TLSFor each leader must show its own
certificate, such as one for its LeaderID:

	TLSFor: func(e leaderelection.RaceEntry) (*tls.Config, error) {
		return &tls.Config{RootCAs: pool, ServerName: e.LeaderID}, nil
	},

A Proxy leaves a leader that hangs when the next leader is known. If a leader leads on, and only
the path to it is dead, a Proxy notices on HTTP/2 within 20 s, by pings. On HTTP/1 an idle
connection is left within 30 s (TCP keepalive). A request under way on HTTP/1 ends when the
kernel gives up its connection, which may take 15 minutes. If your leaders answer in bounded
time, give requests a deadline, or a Transport with a ResponseHeaderTimeout.

# Hand-overs

When a leader gives up leadership by choice, RequireLeader admits no new requests. The lease is kept
until the requests that it has admitted have returned, and the callbacks, for at most
Config.DrainTimeout. A handler notices nothing of that:

	its view lasts, its answer leaves       until it has returned, or DrainTimeout is over
	its ctx ends                            when the view is over (a stream's: within a second)
	what comes meanwhile                    goes to Otherwise, which keeps it for the next leader

Streams end at once, so that they do not hold up the next leader: see [RequireLeader].

The Proxy keeps requests (ProxyOptions.Wait) until there is a next leader. After the release that
takes milliseconds on a store that pushes, and up to the PollInterval of candidates and router on a
polled one.

A process that ends does so by [Serve]. While its campaign drains, each answer closes its connection.
After the release its server lingers for 2 s, passes requests on, and closes its port last. So no
request is lost while a process is restarted in order, neither through a Proxy nor after a redirect.

A request waits in one place, the first Proxy that it comes to, which knows whether the client is
still there. A Proxy marks the requests that it sends. If it cannot be served, RequireLeader and
Proxies of the same election refuse a marked request at once, and the refusal tells the first
Proxy to go on. On HTTP/1 a client that goes away is noticed only when its body has been read. So
a request with a streamed body does not wait at all (ProxyOptions.KeepBody).

# Probes

[Probes] answers load balancers and orchestrators. /readyz is for traffic that any process may get,
since all pass requests on to the leader. It fails as soon as a process begins to end. /leader and
/standby are for traffic that must reach only the leader, or only the standbys. /livez fails if only a
new process helps. A standby,
an unhealthy candidate, and a candidate whose store does not answer are alive: a restart would
improve none of this. docs/loadbalancers has configurations for HAProxy, Envoy and Kubernetes.

# Readiness

[Leader], which is /leader, is for traffic that must reach only the leader. It has a price: only
one process is ever ready. As the readiness probe of a Kubernetes Deployment it never lets a
rollout with maxUnavailable: 0 finish (to which the default, 25 %, rounds for up to three pods).
A new pod becomes ready only when the old leader has gone, and the old leader stays until a new
pod is ready. Any maxUnavailable below the number of pods ends the same way, at the old leader.
A PodDisruptionBudget with minAvailable: 1 likewise forbids to drain the leader's node.

It is better to let every process be ready, and to pass requests on: RequireLeader with a Proxy
as Otherwise, and [Ready], which is /readyz. Without that use the strategy Recreate, or maxUnavailable: 100%,
and no such budget.

# Answers to a request

	no leader                               503, Retry-After: when there can be one
	this process does not lead              503, or what Otherwise does
	it ceased to lead during the request    503, or the answer is broken off
	the leader cannot be reached            502, Retry-After, once Wait is over
	it broke off, or the next one leads     502, if the request cannot be sent again
	the request's body is too large, broke  413, 400
	it did not answer in the request's time 504
	the leader's address leads back here    508
	the record names no allowed address     503, and a line in the log, once a leadership

Experimental: the API of this package may change in any minor version, even after v1.
*/
package lehttp
