package main

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/legrpc"
)

// serviceConfig is what a leader tells its clients, through the election: to send a
// call again over which a server ceased to lead or died. That is right only where all
// methods are idempotent. A call that nobody has worked on is sent again by legrpc.
const serviceConfig = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
	"initialBackoff": "0.05s", "maxBackoff": "1s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// server is a candidate with a gRPC server.
type server struct {
	name     string
	store    *memory.Decider
	grpc     *grpc.Server
	campaign *le.Campaign
	cancel   context.CancelFunc
}

// start starts one. It serves from the beginning, and refuses until it leads.
func start(name string, store *memory.Decider) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	campaign, err := le.Config{
		Decider:          store,
		LeaderID:         name,
		HostPort:         []string{listener.Addr().String()},
		ConnectionParams: []byte(serviceConfig),
		TermLength:       term,
		MaxClockSkew:     skew,
		OnElected:        func(context.Context, *le.TimeView) {}, // a hot standby is ready as it is
	}.Start(ctx)
	if err != nil {
		cancel()
		_ = listener.Close()
		return nil, err
	}
	// The interceptors ask the view before a call is worked on, and again before
	// its answer leaves.
	s := &server{name: name, store: store, campaign: campaign, cancel: cancel, grpc: grpc.NewServer(
		grpc.ChainUnaryInterceptor(legrpc.UnaryServerInterceptor(campaign, nil)),
		grpc.ChainStreamInterceptor(legrpc.StreamServerInterceptor(campaign, nil)))}
	s.grpc.RegisterService(&service, s)
	go func() { _ = s.grpc.Serve(listener) }()
	return s, nil
}

// who is the service's only method: it says who answers, in which leadership.
func (s *server) who(ctx context.Context) *wrapperspb.StringValue {
	return wrapperspb.String(fmt.Sprintln(uint64(le.ViewFrom(ctx).ElectionNumber()), s.name))
}

// crash is what it does in place of dying: it says no more to anybody.
func (s *server) crash() {
	s.store.Inject(memory.LoseRequests())
	s.grpc.Stop()
}

// stop releases what it leads, and ends it.
func (s *server) stop() {
	s.cancel()
	<-s.campaign.Done()
	s.grpc.Stop()
}

const method = "/example.Service/Who"

// service is what protoc would make of
//
//	service Service { rpc Who(google.protobuf.Empty) returns (google.protobuf.StringValue); }
var service = grpc.ServiceDesc{
	ServiceName: "example.Service",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Who", Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := new(emptypb.Empty)
		if err := decode(in); err != nil {
			return nil, err
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: method},
			func(ctx context.Context, _ any) (any, error) { return srv.(*server).who(ctx), nil })
	}}},
}
