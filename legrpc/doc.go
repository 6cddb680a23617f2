/*
Package legrpc brings gRPC calls to the leader of an election, and sees to it that
nobody else answers them.

A client dials the election instead of an address. The resolver watches it, and
moves the channel's connection when leadership does:

	leader := legrpc.NewBuilder(leaderelection.WatchConfig{Decider: decider, MaxClockSkew: time.Second})
	conn, err := grpc.NewClient("leaderelection:///orders.example.com",
		grpc.WithResolvers(leader), grpc.WithTransportCredentials(creds))

While there is no leader the channel has no address: calls made with
grpc.WaitForReady(true) wait for the next one until their deadline, the others fail
with Unavailable. While the store does not answer, the last known leader is kept
until its term has run out.

A client's knowledge is old by as long as news takes, so the promise is made by the
server, which asks its view before it works on a call and before it answers:

	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(legrpc.UnaryServerInterceptor(campaign, nil)),
		grpc.ChainStreamInterceptor(legrpc.StreamServerInterceptor(campaign, nil)))
	healthpb.RegisterHealthServer(server, legrpc.NewHealth(campaign))

A call that comes while this process does not lead is refused with
FailedPrecondition: it has not been worked on, and may be sent again. One that was
overtaken by the end of the view ends with Unavailable: it may have taken effect.
[RefusalOf] tells more of both.

# Hand-overs

A call that is sent in the moment of a hand-over may meet the old leader, and be
refused. gRPC sends it again by itself where the service config says so:

	{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
	  "initialBackoff": "0.02s", "maxBackoff": "0.5s", "backoffMultiplier": 2,
	  "retryableStatusCodes": ["FAILED_PRECONDITION"]}}]}

Add UNAVAILABLE where all methods are idempotent. A leader can hand that config to
its clients itself: ConnectionParams that are a service config become the
channel's. What they are otherwise is none of gRPC's business; they are left out,
with a line in the log.

# Names

The name in the target is not looked up. gRPC takes it as the :authority of calls,
and with TLS as the name that the leader's certificate must have: one certificate
for the service, whichever process leads.
*/
package legrpc
