/*
Package legrpc brings gRPC calls to the leader of an election, and makes sure that only the leader
answers them.

A candidate publishes its address by the HostPort of its Config, or by Campaign.Announce once it
listens. Without an address no client finds it.

A client dials the election instead of an address. The resolver watches the election, and moves
the channel's connection when leadership moves:

	leader := legrpc.NewBuilder(leaderelection.WatchConfig{Decider: decider}, nil)
	conn, err := grpc.NewClient("leaderelection:///orders.example.com",
		append(leader.DialOptions(nil), grpc.WithTransportCredentials(creds))...)

While there is no leader, the channel has no address, and calls wait for the next leader until their
ctx ends. So give each call a deadline. A call with grpc.WaitForReady(false) does not wait: it fails
with Unavailable. While the store does not answer, the last known leader is kept until its term has
run out.

All channels of a [Builder] share one watch of the election. So make one Builder for each election,
and use it for all channels. The watch is a Builder's own: in a candidate's process it goes on after
the campaign has ended, while the Decider is open.

A client's knowledge may be out of date, so the server makes the promise. It asks its view before it
works on a call, and before it answers. [Serve] ends it in the right order:

	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(legrpc.UnaryServerInterceptor(campaign, nil)),
		grpc.ChainStreamInterceptor(legrpc.StreamServerInterceptor(campaign, nil)))
	healthpb.RegisterHealthServer(server, legrpc.NewHealth(campaign))
	err := legrpc.Serve(server, listener, campaign.Done())

A call that comes while this process does not lead is refused with FailedPrecondition: nobody has
worked on it, and it may be sent again. A call during which the view ends is ended with
Unavailable: it may have taken effect. [RefusalOf] tells more about both.

RefusalOf recognizes refusals by a mark in their details, which only the interceptors may set. They
remove a mark that a handler has relayed from a service behind another election. A server
without the interceptors may relay one. So give elections names if calls pass through several
(ServerOptions.Election, ClientOptions.Election).

# Hand-overs and restarts

No call is lost when a leader is restarted, or hands over. Let SIGTERM end the ctx of its campaign:

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	campaign, err := config.Start(ctx)
	...
	err = legrpc.Serve(server, listener, campaign.Done())
	stop() // if the listener has failed, the campaign still runs
	<-campaign.Done()
	return err

Then

  - The leader drains. The interceptors refuse new calls. Calls under way end, and the lease is kept for
    them, for at most DrainTimeout. A program needs no lock, and no OnOusting, for that.
  - The lease is released, and the next leader is elected.
  - The old leader's [Serve] refuses calls until its clients have left for the next leader. Then it ends
    the server, and returns.

The client's interceptors, which are among [Builder.DialOptions], send a refused call again until its
ctx ends. They look only at the mark. So do not use a retryPolicy of gRPC for FAILED_PRECONDITION
instead: it would also repeat the application's own answers with that code. (A client in another
language may use one, if the application has no such answers.)

Subscriptions, and other calls without an end of their own, would delay each hand-over by DrainTimeout,
and then until the term has run out: name them in ServerOptions.Endless. Their clients must begin them again, and so must the
clients of streams on which they send more than one message, if such a stream is refused.

# Calls that may have been worked on

A call ends with Unavailable if its leader crashes, hangs, loses its leadership or overruns
DrainTimeout. The client cannot know if it took effect, and nothing repeats it by itself. A
retryPolicy for UNAVAILABLE is right if all methods are idempotent. A leader can hand such a config to
its clients: ConnectionParams that are a service config become the channel's. Other ConnectionParams are
ignored, with a line in the log. If a method is not idempotent, send a key with each call, which the
server keeps with the effect. Then the caller may repeat it.

A leader that hangs keeps its calls until their deadlines. So a second after the next leader is
known, a channel with [Builder.DialOptions] closes the connection to a silent leader: its calls end
with Unavailable.

# Dead connections

A leader may lead on while only the path to it is dead: a firewall has forgotten the connection, or
a machine has lost its network for its clients alone. gRPC would notice that after a quarter of an
hour. A channel with [Builder.DialOptions] asks a silent leader for signs of life. By default it
does so after six minutes, since a server with gRPC's defaults closes connections that are asked
more often than every five minutes.

So give servers [KeepaliveServerOptions], and set ClientOptions.Keepalive of their clients to 10 to
30 s. A dead connection is then left 10 s after that. Keepalive cannot detect a leader that is
deposed, or that hangs: its connection is alive.

# Shards

If package shard divides the work, a call goes to the owner of its shard. Generated clients take a
[ShardConn] in place of a channel. It follows the group, and has a channel to each member.
[WithShard] names the shard of a call:

	conn, err := legrpc.FollowShards(shard.WatchConfig{Store: store}, &legrpc.ShardOptions{Dial: credentials})
	...
	orders := pb.NewOrdersClient(conn)
	orders.Bill(legrpc.WithShard(ctx, shard.KeyName(customer, 64)), request)

At each member, [UnaryOwnerInterceptor] and [StreamOwnerInterceptor] serve the shards that it owns.
They refuse all other calls, by a mark for that shard only. A shard that must be let go is kept until
its calls under way have returned, as the lease is. Handlers get the shard, and its fencing token, by
shard.OwnedFrom.

# Several ports, and TLS

A candidate that serves several things has one record for all of them. BuilderOptions.Addresses
chooses the right address, by [Port] or by a [Named] address in ConnectionParams. The chosen
addresses are checked like HostPorts. The channel follows what a leader announces while it leads
(Campaign.Announce).

BuilderOptions.ServerName is for candidates that each have their own certificate. Other checks of a
leader's identity belong into the channel's TransportCredentials, which you choose.

# Whom to trust

Anybody who can write the election's record decides where calls go, with their credentials. By
default link-local, multicast and unspecified addresses are refused. Use BuilderOptions.CheckAddress
to allow only the addresses that your candidates can have. TLS with the service's certificate keeps
out everybody else.

A refusal names nobody: callers may be outsiders.

# Names

The name in the target is not looked up. gRPC uses it as the :authority of calls and, with TLS, as
the name that the leader's certificate must have. So one certificate serves for the service,
whichever process leads.

Experimental: the API of this package may change in any minor version, even after v1.
*/
package legrpc
