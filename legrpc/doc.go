/*
Package legrpc brings gRPC calls to the leader of an election, and sees to it that
nobody else answers them.

A candidate says where it is reached by the HostPort of its Config, or by
Campaign.Announce once it listens. Without one no client finds it.

A client dials the election instead of an address. The resolver watches it, and
moves the channel's connection when leadership does:

	leader := legrpc.NewBuilder(leaderelection.WatchConfig{Decider: decider, MaxClockSkew: time.Second})
	conn, err := grpc.NewClient("leaderelection:///orders.example.com",
		append(leader.DialOptions(nil), grpc.WithTransportCredentials(creds))...)

While there is no leader the channel has no address: calls made with
grpc.WaitForReady(true) wait for the next one until their deadline, the others fail
with Unavailable. While the store does not answer, the last known leader is kept
until its term has run out.

All channels of a [Builder] have one watch of the election among them. So make one Builder
for each election, and let all that dial it share it.

A client's knowledge is old by as long as news takes, so the promise is made by the
server, which asks its view before it works on a call and before it answers:

	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(legrpc.UnaryServerInterceptor(campaign, nil)),
		grpc.ChainStreamInterceptor(legrpc.StreamServerInterceptor(campaign, nil)))
	healthpb.RegisterHealthServer(server, legrpc.NewHealth(campaign))

A call that comes while this process does not lead is refused with
FailedPrecondition: it has not been worked on, and may be sent again. One that was
overtaken by the end of the view ends with Unavailable: it may have taken effect.
[RefusalOf] tells more of both. It knows them by a mark in their details, which is
the interceptors' own: they remove one that a handler has relayed from a service
behind another election. A server without the interceptors may relay one: so give
elections names, if calls pass through several (ServerOptions.Election,
ClientOptions.Election).

# Hand-overs

A call that is sent in the moment of a hand-over may meet the old leader, and be
refused. The client's interceptors, which are among [Builder.DialOptions], send it
again. They go by the mark alone. So do not name FAILED_PRECONDITION in a retryPolicy
of gRPC's instead: that would repeat the application's own answers of that code, as
well. (A client in another language may, if the application has none.)

A retryPolicy for UNAVAILABLE is right where all methods are idempotent: it repeats
calls that the leader died over. A leader can hand such a config to its clients
itself: ConnectionParams that are a service config become the channel's. What they
are otherwise is none of gRPC's business; they are left out, with a line in the log.

To end a server, end its campaign, wait for that, and then call GracefulStop: calls that
still come are refused, and go on to the next leader. Stop would break them off, and they
would end with Unavailable. GracefulStop waits for those who Watch the Health service: call
Stop after a few seconds.

A leader that hangs keeps its calls, for as long as their deadlines are. So a second
after the next leader is known, a channel with [Builder.DialOptions] closes the
connection to one that is silent: its calls end with Unavailable.

# Dead connections

If a leader leads on, and only the path to it is dead (a firewall that has forgotten the
connection, a machine that has lost its network for its clients alone), gRPC would notice
after a quarter of an hour. A channel with [Builder.DialOptions] asks a leader that is
silent for signs of life: by default after six minutes, since a server of gRPC's defaults
closes connections that are asked more often than every five. So give servers
[KeepaliveServerOptions], and their clients ClientOptions.Keepalive of 10 to 30 s: a dead
connection is then left 10 s after that. Keepalive is no way to notice a leader that is
deposed, or that hangs: its connection is alive.

# Shards

If the work is divided by package shard, a call goes to the owner of its shard. A
[ShardConn] is what generated clients take in place of a channel; it follows the group, and
has a channel to each member. [WithShard] names the shard of a call:

	conn, err := legrpc.FollowShards(shard.WatchConfig{Store: store}, &legrpc.ShardOptions{Dial: credentials})
	...
	orders := pb.NewOrdersClient(conn)
	orders.Bill(legrpc.WithShard(ctx, strconv.Itoa(shard.ForKey(customer, 64))), request)

At each member [UnaryOwnerInterceptor] and [StreamOwnerInterceptor] serve what it owns, and
refuse all else by a mark of that shard's own; handlers have the shard, and its fencing
token, by [OwnedFrom].

# Several ports, and TLS

A candidate that serves several things has one record for all: [Builder.WithAddresses]
chooses the one that is meant, by [Port] or by a [Named] address in ConnectionParams, and
the addresses chosen are checked as HostPorts are. What a leader announces while it leads
(Campaign.Announce) is followed.

[Builder.WithServerName] is for candidates that each have a certificate of their own.
Whatever else a leader's identity must have is for the channel's TransportCredentials to
ask, which are yours.

# Who is to be trusted

Whoever can write the election's record decides where calls go, with their
credentials. By default link-local, multicast and unspecified addresses are refused;
[Builder.WithCheckAddress] allows only those that your candidates can have. TLS with
the service's certificate keeps out all others.

A refusal names nobody, unless ServerOptions.NameLeader says that callers may know
who leads, and where.

# Readiness

[Health] of the service as a readiness probe lets one process be ready at a time. With
it, a Kubernetes rollout whose maxUnavailable is not 100% never ends (see package
lehttp, "Readiness"). Clients that dial the election need no such probe.

# Names

The name in the target is not looked up. gRPC takes it as the :authority of calls,
and with TLS as the name that the leader's certificate must have: one certificate
for the service, whichever process leads.
*/
package legrpc
