package legrpc_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/legrpc"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/shard"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// A server that leads, and a client that finds it by the election.
func Example() {
	election := memory.NewDecider() // a real program uses a store that all can reach
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	campaign, err := leaderelection.Config{
		Decider: election, LeaderID: "a", HostPort: []string{listener.Addr().String()},
		OnElected: func(context.Context, *leaderelection.TimeView) {},
	}.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(legrpc.UnaryServerInterceptor(campaign, nil)),
		grpc.ChainStreamInterceptor(legrpc.StreamServerInterceptor(campaign, nil)))
	healthpb.RegisterHealthServer(server, legrpc.NewHealth(campaign))
	served := make(chan error)
	go func() { served <- legrpc.Serve(server, listener, campaign.Done()) }()

	decider := election.Handle() // the election, as this process sees it
	leader := legrpc.NewBuilder(leaderelection.WatchConfig{Decider: decider}, nil)
	conn, err := grpc.NewClient("leaderelection:///orders",
		append(leader.DialOptions(nil), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	for err == nil {
		var health *healthpb.HealthCheckResponse
		if health, err = watch.Recv(); health.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			fmt.Println("the leader is there")
			break
		}
	}

	cancel() // in a program, SIGTERM does this
	fmt.Println("the server has ended:", <-served)
	conn.Close()
	// Output:
	// the leader is there
	// the server has ended: <nil>
}

// A member that serves the shards that it owns, and a client whose calls go to the owner of
// their shard. The service is any that protoc generates; here it is that of gRPC's health.
func ExampleFollowShards() {
	var mu sync.Mutex
	records := map[string]*memory.Decider{} // of a real group: a bucket, a table, a database
	store := func(name string) (leaderelection.RaceDecider, error) {
		mu.Lock()
		defer mu.Unlock()
		if records[name] == nil {
			records[name] = memory.NewDecider()
		}
		return records[name].Handle(), nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	member, err := shard.Config{
		Store: store, MemberID: "a", Shards: shard.Numbered(4), ClockPolicy: leaderelection.SharedClock, HostPort: []string{listener.Addr().String()},
		OnOwned: func(ctx context.Context, _ *shard.Owned) error { <-ctx.Done(); return nil },
	}.Start(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(legrpc.UnaryOwnerInterceptor(member, &legrpc.ServerOptions{
		Exempt: func(string) bool { return false }, // as it is, health is served whatever is owned
	})))
	healthpb.RegisterHealthServer(server, orders{})
	served := make(chan error)
	go func() { served <- legrpc.Serve(server, listener, member.Done()) }()

	conn, err := legrpc.FollowShards(shard.WatchConfig{Store: store, ClockPolicy: leaderelection.SharedClock},
		&legrpc.ShardOptions{Dial: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := healthpb.NewHealthClient(conn)
	for _, customer := range []string{"customer-1", "customer-2"} {
		ctx := legrpc.WithShard(context.Background(), shard.KeyName(customer, 4))
		if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: customer}, grpc.WaitForReady(true)); err != nil {
			fmt.Println(err)
		}
	}

	conn.Close()
	member.Leave(context.Background())
	<-served
	// Output:
	// shard 0, with a token: true: customer-1
	// shard 3, with a token: true: customer-2
}

// orders is a service whose handlers have the shard, and the token to fence writes by.
type orders struct {
	healthpb.UnimplementedHealthServer
}

func (orders) Check(ctx context.Context, in *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	owned := shard.OwnedFrom(ctx)
	fmt.Printf("shard %s, with a token: %v: %s\n", owned.Name(), owned.ElectionNumber() != leaderelection.NoElections, in.Service)
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// What a server refuses reports whether the call was worked on, and who leads.
func ExampleRefusalOf() {
	candidate := viewtest.NewCandidate(nil) // a campaign, in a real program
	intercept := legrpc.UnaryServerInterceptor(candidate, nil)
	call := func() {
		_, err := intercept(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/orders.Orders/Bill"},
			func(context.Context, any) (any, error) {
				candidate.SetEnd(time.Now()) // the view ends while the handler works
				return nil, nil
			})
		refusal, is := legrpc.RefusalOf(err)
		fmt.Println(status.Code(err), is, "processed:", refusal.Processed)
	}
	call()
	candidate.Lead(7, time.Now().Add(time.Hour))
	call()
	// Output:
	// FailedPrecondition true processed: false
	// Unavailable true processed: true
}
