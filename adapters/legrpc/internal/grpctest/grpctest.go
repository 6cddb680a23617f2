// Package grpctest is a gRPC service for tests, and what starts and calls it.
package grpctest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Plaintext is the DialOption of a channel without TLS.
var Plaintext = grpc.WithTransportCredentials(insecure.NewCredentials())

// Service is what a test's server does.
type Service struct {
	Say  func(ctx context.Context, in string) (string, error)
	Talk func(s grpc.ServerStream) error
}

// Description is of a Service, as protoc would describe it: Say answers a string with a string, Talk streams
// them both ways.
var Description = grpc.ServiceDesc{
	ServiceName: "test.Test",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(srv any, ctx context.Context, dec func(any) error, next grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, in any) (any, error) {
			out, err := srv.(*Service).Say(ctx, in.(*wrapperspb.StringValue).Value)
			return wrapperspb.String(out), err
		}
		if next == nil {
			return handle(ctx, in)
		}
		return next(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Test/Say"}, handle)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(srv any, s grpc.ServerStream) error {
		return srv.(*Service).Talk(s)
	}}},
}

// Echo answers with a name and what was said.
func Echo(name string) *Service {
	return &Service{Say: func(_ context.Context, in string) (string, error) { return fmt.Sprint(name, " ", in), nil }}
}

// Listen listens on the loopback.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	var to net.ListenConfig
	l, err := to.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Start has a server with s serve on l until the test ends, and returns its address.
func Start(t testing.TB, l net.Listener, server *grpc.Server, s *Service) string {
	t.Helper()
	server.RegisterService(&Description, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); wg.Wait() })
	return l.Addr().String()
}

// Dial returns a channel to a target, closed with the test.
func Dial(t testing.TB, target string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{Plaintext}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Say calls Say.
func Say(ctx context.Context, conn grpc.ClientConnInterface, text string, o ...grpc.CallOption) (string, error) {
	out := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, "/test.Test/Say", wrapperspb.String(text), out, o...)
	return out.Value, err
}

// Talk opens a stream of Talk.
func Talk(ctx context.Context, conn grpc.ClientConnInterface, o ...grpc.CallOption) (grpc.ClientStream, error) {
	return conn.NewStream(ctx, &Description.Streams[0], "/test.Test/Talk", o...)
}
