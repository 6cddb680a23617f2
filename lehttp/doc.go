/*
Package lehttp brings HTTP requests to the leader of an election, and sees to it
that nobody else answers them.

A candidate says where it is reached by the HostPort of its Config, or by Campaign.Announce once
it listens. Without one nobody finds it.

Two sides need it. The process that is asked may not lead any more when it
answers, whatever its caller knew: [RequireLeader] is a middleware that serves
while the view lasts, and asks the view again before an answer leaves.

	mux.Handle("/", lehttp.RequireLeader(campaign, nil)(app))
	mux.Handle("/election/", http.StripPrefix("/election", lehttp.Probes(campaign, nil)))

The process that sends a request must find the leader. A [Router] follows the
election, and makes handlers of what it knows: [Router.Proxy] passes requests on,
[Router.Redirect] sends clients away with 307.

	router, err := lehttp.Follow(ctx, leaderelection.WatchConfig{Decider: decider, MaxClockSkew: time.Second})
	...
	http.ListenAndServe(":8080", router.Proxy(nil))

Both together make a service of hot standbys of which any may be asked:

	router := lehttp.NewRouter(nil, config.MaxClockSkew)
	config.Trace = &leaderelection.Trace{News: router.News}
	campaign, err := config.Start(ctx)
	...
	elsewhere := router.Proxy(&lehttp.ProxyOptions{LeaderID: config.LeaderID})
	http.ListenAndServe(":8080", lehttp.RequireLeader(campaign, &lehttp.RequireOptions{Otherwise: elsewhere})(app))

# Shards

If the work is divided by package shard, a request goes to the owner of its shard.
[RequireOwner] is RequireLeader for shards, and a [ShardRouter] finds their owners:

	shardOf := lehttp.ShardKey(64, func(r *http.Request) string { return r.PathValue("customer") })
	mux.Handle("/orders/{customer}", lehttp.RequireOwner(member, shardOf, nil)(app)) // at each member

	router, err := lehttp.FollowShards(ctx, shard.WatchConfig{Store: store}) // at whoever passes requests on
	...
	mux.Handle("/orders/{customer}", router.Proxy(shardOf, nil))

The handler has the shard, and its fencing token, by [OwnedFrom]. All that is said here of
leaders is true of owners: a request is kept while its shard moves, and sent again only if
nobody has worked on it. A refusal is its shard's own, so it says nothing of another shard.

# Who is to be trusted

A router's knowledge is old by as long as news takes, so it is a hint. The
promise is made at the other end: a request that reaches a process which has
ceased to lead is refused there by RequireLeader, with a header by which a Proxy
knows that nobody has worked on it and that it may go to the next leader, whatever
its method. A leader without RequireLeader serves whatever reaches it.

That header is RequireLeader's alone: it removes one that its handler has relayed.
A leader without RequireLeader may relay one from a service behind another election.
So give elections names, if requests pass through several (RequireOptions.Election,
ProxyOptions.Election).

Whoever can write the election's record decides where a Proxy sends requests, with
their cookies and credentials. ProxyOptions.CheckAddress says which addresses are
allowed.

A Proxy believes nothing that a client says of itself: it replaces X-Forwarded-For,
-Host and -Proto, unless ProxyOptions.TrustForwarded says that a proxy of yours has
sent them, and it removes Fencing-Token, so that no outsider can raise a fence.
Answers of its own name no candidate and no address: those are in the log.

# Several ports, TLS, dead connections

A candidate that serves several things has one record for all: ProxyOptions.Addresses
chooses the one that is meant, by [Port] or by a [Named] address in ConnectionParams.
CheckAddress is asked about what was chosen, as about a HostPort. What a leader announces
while it leads (Campaign.Announce) is followed.

ProxyOptions.TLS is how leaders are spoken to by https. With TLSFor each has to show a
certificate of its own, such as one for its LeaderID:

	TLSFor: func(e leaderelection.RaceEntry) (*tls.Config, error) {
		return &tls.Config{RootCAs: pool, ServerName: e.LeaderID}, nil
	},

A leader that hangs is left when the next one is known. If a leader leads on, and only the
path to it is dead, a Proxy notices on HTTP/2 within 20 s, by pings. On HTTP/1 an idle
connection is left within 30 s (TCP keepalive), and a request under way ends when the
kernel gives its connection up, which may take 15 minutes: give requests a deadline, or a
Transport with a ResponseHeaderTimeout, if your leaders answer in bounded time.

# Hand-overs

A leader that gives up leadership by choice refuses new requests from the moment
its ctx is cancelled, and still answers those under way while its callbacks wind
down and the lease is kept. So shut the HTTP server's work down in OnOusting or
before OnElected returns; what is still running when the lease is released is
thrown away, and its ctx ends. The Proxy keeps requests (ProxyOptions.Wait) until the next leader is
there. On a store that pushes that takes milliseconds; on one that is polled, up to
the candidates' and the router's PollInterval.

# Probes

[Probes] has what load balancers and orchestrators ask: /leader and /standby for traffic
that is to reach the leader alone, or all but the leader; /livez, which fails if only a
new process helps. A standby, a candidate that is unhealthy, and one whose store does not
answer are alive: a restart would make none of it better. docs/loadbalancers has
configurations for HAProxy, Envoy and Kubernetes.

# Readiness

[Ready], which is /leader, is for traffic that is to reach the leader alone, and has a price: only one
process is ever ready. A Kubernetes Deployment whose readiness probe it is never
finishes a rollout with maxUnavailable: 0 (to which the default, 25 %, rounds for up
to three pods): a new pod becomes ready only when the old leader has gone, and that is
kept until a new pod is ready. Any maxUnavailable below the number of pods ends so,
at the old leader. A PodDisruptionBudget with minAvailable: 1 likewise forbids to
drain the leader's node.

Better, let every process be ready, and pass requests on: RequireLeader with a Proxy
as Otherwise needs no such probe. Otherwise use the strategy Recreate, or
maxUnavailable: 100%, and no such budget.

# What a request meets

	no leader                               503, Retry-After: when there can be one
	this process does not lead              503, or what Otherwise does
	it ceased to lead during the request    503, or the answer is broken off
	the leader cannot be reached            502, Retry-After, once Wait is over
	it broke off, or the next one leads     502, if the request cannot be sent again
	the request's body is too large, broke  413, 400
	it did not answer in the request's time 504
	the leader's address leads back here    508
	the record names no allowed address     503, and a line in the log, once a leadership
*/
package lehttp
