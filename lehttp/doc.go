/*
Package lehttp brings HTTP requests to the leader of an election, and sees to it
that nobody else answers them.

Two sides need it. The process that is asked may not lead any more when it
answers, whatever its caller knew: [RequireLeader] is a middleware that serves
while the view lasts, and asks the view again before an answer leaves.

	mux.Handle("/", lehttp.RequireLeader(campaign, nil)(app))
	mux.Handle("/ready", lehttp.Ready(campaign))

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

# Who is to be trusted

A router's knowledge is old by as long as news takes, so it is a hint. The
promise is made at the other end: a request that reaches a process which has
ceased to lead is refused there by RequireLeader, with a header by which a Proxy
knows that nobody has worked on it and that it may go to the next leader, whatever
its method. A leader without RequireLeader serves whatever reaches it.

# Hand-overs

A leader that gives up leadership by choice refuses new requests from the moment
its ctx is cancelled, and still answers those under way while its callbacks wind
down and the lease is kept. So shut the HTTP server's work down in OnOusting or
before OnElected returns; what is still running when the lease is released is
thrown away. The Proxy keeps requests (ProxyOptions.Wait) until the next leader is
there. On a store that pushes that takes milliseconds; on one that is polled, up to
the candidates' and the router's PollInterval.

# What a request meets

	no leader                               503, Retry-After: when there can be one
	this process does not lead              503, or what Otherwise does
	it ceased to lead during the request    503, or the answer is broken off
	the leader cannot be reached, or broke  502
	it did not answer in the request's time 504
	the leader's address leads back here    508
	the record names no usable address      503, and a line in the log, once a reign
*/
package lehttp
