package legrpc_test

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/legrpc"
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
		Decider: election, LeaderID: "a", HostPort: []string{listener.Addr().String()}, MaxClockSkew: time.Second,
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
	go server.Serve(listener)

	decider := election.Handle() // the election, as this process sees it
	leader := legrpc.NewBuilder(leaderelection.WatchConfig{Decider: decider, MaxClockSkew: time.Second})
	conn, err := grpc.NewClient("leaderelection:///orders",
		append(leader.DialOptions(nil), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	for err == nil {
		var health *healthpb.HealthCheckResponse
		if health, err = watch.Recv(); health.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			fmt.Println("the leader is there")
			break
		}
	}

	conn.Close()
	cancel()
	campaign.Wait()
	server.Stop()
	// Output:
	// the leader is there
}

// What a server refuses reports whether the call was worked on, and who leads.
func ExampleRefusalOf() {
	view := leaderelection.NewTimeView(nil) // a campaign's View, in a real program
	intercept := legrpc.UnaryServerInterceptor(leadership{view}, nil)
	call := func() {
		_, err := intercept(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/orders.Orders/Bill"},
			func(context.Context, any) (any, error) {
				view.Set(time.Now()) // the view ends while the handler works
				return nil, nil
			})
		refusal, is := legrpc.RefusalOf(err)
		fmt.Println(status.Code(err), is, "processed:", refusal.Processed)
	}
	call()
	view.Set(time.Now().Add(time.Hour))
	call()
	// Output:
	// FailedPrecondition true processed: false
	// Unavailable true processed: true
}

// leadership stands for a campaign.
type leadership struct{ view *leaderelection.TimeView }

func (l leadership) View() *leaderelection.TimeView { return l.view }
