package legrpc_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/wrapperspb"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/legrpc"
	"github.com/c8e606e4/leaderelection/viewtest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(restartDir); dir != "" {
		if err := serveProcess(dir, os.Getenv(restartAddress)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const S = time.Second

// record is one of leadership number, with a term that has just begun.
func record(number uint64, leader string, hostPort ...string) *le.RaceEntry {
	return &le.RaceEntry{
		LeaderID: leader, HostPort: hostPort, ElectionNumber: le.ElectionNumber(number),
		TermLength: 15 * time.Second, TermExpiry: time.Now().Add(15 * time.Second),
	}
}

// counted returns a handle on a record, and how often it has read.
func counted(d *memory.Decider) (*memory.Decider, *atomic.Int32) {
	mine, reads := d.Handle(), new(atomic.Int32)
	mine.Inject(func(op memory.Op) memory.Fault {
		if op.Kind == memory.Read {
			reads.Add(1)
		}
		return memory.Fault{}
	})
	return mine, reads
}

// leads is a Candidate whose parts a test sets.
type leads struct {
	mu     sync.Mutex
	view   *viewtest.View
	status le.Status
	entry  le.RaceEntry
}

func (l *leads) View() *le.TimeView   { l.mu.Lock(); defer l.mu.Unlock(); return l.view.TimeView }
func (l *leads) Status() le.Status    { l.mu.Lock(); defer l.mu.Unlock(); return l.status }
func (l *leads) Leader() le.RaceEntry { l.mu.Lock(); defer l.mu.Unlock(); return l.entry }

func (l *leads) set(f func()) { l.mu.Lock(); defer l.mu.Unlock(); f() }

// leading is a Candidate that lasts until its view is set.
func leading() *leads {
	v := viewtest.New(nil, 0)
	v.Set(time.Now().Add(time.Hour))
	return &leads{view: v, status: le.Leading}
}

func (l *leads) over() { l.mu.Lock(); defer l.mu.Unlock(); l.view.Set(time.Now().Add(-time.Second)) }

// service is what a test's server does.
type service struct {
	say  func(ctx context.Context, in string) (string, error)
	talk func(s grpc.ServerStream) error
}

// The service, as protoc would describe it: Say answers a string with a string,
// Talk streams them both ways.
var description = grpc.ServiceDesc{
	ServiceName: "test.Test",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(srv any, ctx context.Context, dec func(any) error, next grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, in any) (any, error) {
			out, err := srv.(*service).say(ctx, in.(*wrapperspb.StringValue).Value)
			return wrapperspb.String(out), err
		}
		if next == nil {
			return handle(ctx, in)
		}
		return next(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Test/Say"}, handle)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(srv any, s grpc.ServerStream) error {
		return srv.(*service).talk(s)
	}}},
}

// serve starts a server on the loopback behind the interceptors of l, and returns
// its address.
func serve(t testing.TB, l le.Candidate, s *service) string {
	t.Helper()
	return serveWith(t, l, s, nil)
}

func serveWith(t testing.TB, l le.Candidate, s *service, o *legrpc.ServerOptions) string {
	t.Helper()
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(legrpc.UnaryServerInterceptor(l, o)),
		grpc.ChainStreamInterceptor(legrpc.StreamServerInterceptor(l, o)))
	server.RegisterService(&description, s)
	grpc_health_v1.RegisterHealthServer(server, legrpc.NewHealth(l, "test.Test"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); wg.Wait() })
	return listener.Addr().String()
}

// dial returns a channel to a target, closed with the test.
func dial(t testing.TB, target string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// say calls Say.
func say(ctx context.Context, conn *grpc.ClientConn, text string, o ...grpc.CallOption) (string, error) {
	out := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, "/test.Test/Say", wrapperspb.String(text), out, o...)
	return out.Value, err
}

// echo answers with a name and what was said.
func echo(name string) *service {
	return &service{say: func(_ context.Context, in string) (string, error) { return fmt.Sprint(name, " ", in), nil }}
}
