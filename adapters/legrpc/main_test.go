package legrpc_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/wrapperspb"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/legrpc"
	"github.com/c8e606e4/leaderelection/adapters/legrpc/internal/grpctest"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
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

// must is for what has to work: must(f())(t) is the result of f.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

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

// viewStream is a server's side without a client.
type viewStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s viewStream) Context() context.Context { return s.ctx }

// retry is a service config for methods that are idempotent.
const retry = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
	"initialBackoff": "0.02s", "maxBackoff": "0.5s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// follow returns a channel to the leader.
func follow(t testing.TB, d le.RaceDecider, skew time.Duration) *grpc.ClientConn {
	t.Helper()
	return dial(t, "leaderelection:///test", legrpc.NewBuilder(le.WatchConfig{Decider: d, MaxClockSkew: skew}, nil).DialOptions(nil)...)
}

// retrying are a client's interceptors.
func retrying(o *legrpc.ClientOptions) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithUnaryInterceptor(legrpc.UnaryClientInterceptor(o)), grpc.WithStreamInterceptor(legrpc.StreamClientInterceptor(o))}
}

// once calls a service's stream with one message, and returns its first answer.
func once(ctx context.Context, conn *grpc.ClientConn, text string) (string, error) {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "Talk", ServerStreams: true}, "/test.Test/Talk")
	if err != nil {
		return "", err
	}
	if err := s.SendMsg(wrapperspb.String(text)); err != nil {
		return "", err
	}
	if err := s.CloseSend(); err != nil {
		return "", err
	}
	out := new(wrapperspb.StringValue)
	return out.Value, s.RecvMsg(out)
}

// candidate is one with a gRPC server that answers with its leadership's number.
type candidate struct {
	id       string
	store    *memory.Decider
	campaign *le.Campaign
	elected  chan le.ElectionNumber
}

func join(t testing.TB, ctx context.Context, d *memory.Decider, id string, term, skew time.Duration, params string) *candidate {
	t.Helper()
	c := &candidate{id: id, store: d.Handle(), elected: make(chan le.ElectionNumber, 100_000)}
	listener := grpctest.Listen(t)
	campaign := must(le.Config{
		Decider: c.store, LeaderID: id, HostPort: []string{listener.Addr().String()}, ConnectionParams: []byte(params),
		TermLength: term, MaxClockSkew: skew,
		OnElected: func(_ context.Context, v *le.TimeView) { c.elected <- v.ElectionNumber() },
	}.Start(ctx))(t)
	c.campaign = campaign
	grpctest.Start(t, listener, behind(campaign, nil), &service{Say: func(ctx context.Context, _ string) (string, error) {
		return fmt.Sprint(uint64(le.ViewFrom(ctx).ElectionNumber())), nil
	}})
	return c
}

// through returns a channel to p.
func through(t *testing.T, p *routetest.Pipes, target string, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return dial(t, target, append(o, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.Dial(ctx) }))...)
}

type service = grpctest.Service

var (
	say  = grpctest.Say
	dial = grpctest.Dial
	echo = grpctest.Echo
)

// talk opens a stream.
func talk(t testing.TB, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	s := must(grpctest.Talk(t.Context(), conn))(t)
	return s
}

// leading is a Candidate that leads until its view is over.
func leading() *viewtest.Candidate {
	l := viewtest.NewCandidate(nil)
	lead(l)
	return l
}

func lead(l *viewtest.Candidate) { l.Lead(0, time.Now().Add(time.Hour)) }

// over ends the view.
func over(l *viewtest.Candidate) { l.SetEnd(time.Now()) }

// standby is a Candidate that does not lead.
func standby() *viewtest.Candidate { return viewtest.NewCandidate(nil) }

// behind returns a server behind the interceptors of l, with a health service.
func behind(l le.Candidate, o *legrpc.ServerOptions) *grpc.Server {
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(legrpc.UnaryServerInterceptor(l, o)),
		grpc.ChainStreamInterceptor(legrpc.StreamServerInterceptor(l, o)))
	healthpb.RegisterHealthServer(server, legrpc.NewHealth(l, "test.Test"))
	return server
}

// serve starts such a server on the loopback, and returns its address.
func serve(t testing.TB, l le.Candidate, s *service) string {
	t.Helper()
	return serveWith(t, l, s, nil)
}

func serveWith(t testing.TB, l le.Candidate, s *service, o *legrpc.ServerOptions) string {
	t.Helper()
	return grpctest.Start(t, grpctest.Listen(t), behind(l, o), s)
}
