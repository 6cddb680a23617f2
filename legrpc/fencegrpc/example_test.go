package fencegrpc_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/legrpc/fencegrpc"
)

// A resource that refuses a deposed leader's calls, and a leader whose calls carry
// its token. The health service stands for one of the resource's own.
func Example() {
	guard := fence.NewGuard("orders", 0)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(fencegrpc.UnaryServerInterceptor(guard, nil)))
	healthpb.RegisterHealthServer(server, health.NewServer())
	l := bufconn.Listen(1 << 16) // in a program, a net.Listener
	go func() { _ = server.Serve(l) }()
	defer server.Stop()

	conn, err := grpc.NewClient("passthrough:///resource",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(fencegrpc.UnaryClientInterceptor()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	call := func(ctx context.Context) error {
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err
	}

	election := memory.NewDecider()
	election.Replace(&leaderelection.RaceEntry{ElectionNumber: 41}) // others have led before
	err = leaderelection.Config{Decider: election, LeaderID: "web-1"}.Run(context.Background(),
		func(ctx context.Context, view *leaderelection.TimeView) error {
			ctx = fence.WithGate(ctx, fence.Gate{View: view, Election: "orders"})
			fmt.Println(call(ctx))
			// Another leadership writes, of which this process has not heard yet.
			if err := guard.Check(ctx, fence.Token{Election: "orders", Number: 43}); err != nil {
				return err
			}
			err := call(ctx)
			fmt.Println(err)
			return fencegrpc.Refused(err)
		})
	fmt.Println(err)
	// Output:
	// <nil>
	// rpc error: code = Aborted desc = fence: stale token orders:42: 43 has been seen. If this process leads, the election's record was set back: run leaderelect reset --after 43
	// fence: stale token
}
