package fencegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/legrpc/fencegrpc"
	"github.com/c8e606e4/leaderelection/adapters/legrpc/internal/grpctest"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering is a service whose Say answers with the token that came, and whose Talk echoes.
var answering = &grpctest.Service{
	Say: func(ctx context.Context, _ string) (string, error) {
		t, _ := fence.TokenFrom(ctx)
		return t.String(), nil
	},
	Talk: func(s grpc.ServerStream) error {
		for {
			m := new(wrapperspb.StringValue)
			if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	},
}

// listen starts a fenced server, and returns its address.
func listen(t *testing.T, c fence.Checker) string {
	t.Helper()
	server := grpc.NewServer(grpc.UnaryInterceptor(fencegrpc.UnaryServerInterceptor(c, nil)), grpc.StreamInterceptor(fencegrpc.StreamServerInterceptor(c, nil)))
	return grpctest.Start(t, grpctest.Listen(t), server, answering)
}

// serve starts a fenced server, and returns a channel to it.
func serve(t *testing.T, c fence.Checker, client ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return grpctest.Dial(t, listen(t, c), client...)
}

// leader are the interceptors of a leader's channel.
func leader() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(fencegrpc.UnaryClientInterceptor()), grpc.WithChainStreamInterceptor(fencegrpc.StreamClientInterceptor())}
}

func say(ctx context.Context, conn *grpc.ClientConn, o ...grpc.CallOption) (string, error) {
	return grpctest.Say(ctx, conn, "", o...)
}

func TestServer(t *testing.T) {
	conn := serve(t, fence.NewGuard("orders", 5))
	for _, c := range []struct {
		tokens  []string
		code    codes.Code
		refused error
	}{
		{[]string{"orders:5"}, codes.OK, nil},
		{[]string{"orders:4"}, codes.Aborted, fence.ErrStale},
		{nil, codes.FailedPrecondition, fence.ErrNoToken},
		{[]string{"five"}, codes.InvalidArgument, fence.ErrMalformed},
		{[]string{"orders:9223372036854775808"}, codes.InvalidArgument, fence.ErrMalformed},
		{[]string{":7"}, codes.InvalidArgument, fence.ErrMalformed},
		{[]string{"orders:5", "orders:6"}, codes.InvalidArgument, fence.ErrMalformed},
		{[]string{"users:9"}, codes.InvalidArgument, fence.ErrOtherElection},
	} {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{fencegrpc.Key: c.tokens})
		out, err := say(ctx, conn)
		if status.Code(err) != c.code || fencegrpc.Refused(err) != c.refused || err == nil && out != "orders:5" {
			t.Errorf("%v: %q, %v", c.tokens, out, err)
		}
		s, err := grpctest.Talk(ctx, conn)
		if err == nil {
			_ = s.CloseSend()
			err = s.RecvMsg(new(wrapperspb.StringValue))
		}
		if c.code == codes.OK && !errors.Is(err, io.EOF) || c.code != codes.OK && (status.Code(err) != c.code || fencegrpc.Refused(err) != c.refused) {
			t.Errorf("stream %v: %v", c.tokens, err)
		}
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), fencegrpc.Key, "orders:5")
	broken := fence.NewGuard("orders", 0)
	broken.Confirm = func(context.Context, fence.Token) error { return errors.New("the database is gone") }
	if _, err := say(ctx, serve(t, broken)); status.Code(err) != codes.Unavailable || fencegrpc.Refused(err) != nil {
		t.Error(err)
	}
	other, err := status.New(codes.Aborted, "").WithDetails(&errdetails.ErrorInfo{Domain: "example.com", Reason: "FENCING_TOKEN_STALE"})
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []error{status.Error(codes.Aborted, "the application's own"), other.Err()} {
		if err := fencegrpc.Refused(own); err != nil {
			t.Errorf("%v is taken for %v", own, err)
		}
	}
}

func TestClientAndServer(t *testing.T) {
	guard := fence.NewGuard("orders", 0)
	conn := serve(t, guard, leader()...)
	gate, end := fencetest.Lead(t)
	ctx := fence.WithGate(t.Context(), gate)
	// A token of the caller's own making does not get through.
	if out, err := say(metadata.AppendToOutgoingContext(ctx, fencegrpc.Key, "orders:99"), conn); out != "orders:2" || err != nil {
		t.Fatal(out, err)
	}
	echo := func(s grpc.ClientStream) error {
		if err := s.SendMsg(wrapperspb.String("x")); err != nil {
			return err
		}
		return s.RecvMsg(new(wrapperspb.StringValue))
	}
	deposed, err := grpctest.Talk(ctx, conn)
	if err == nil {
		err = echo(deposed)
	}
	if err != nil {
		t.Fatal(err)
	}
	stopped, err := grpctest.Talk(ctx, conn)
	if err == nil {
		err = echo(stopped)
	}
	if err != nil {
		t.Fatal(err)
	}

	// Another leadership writes: the stream of this one ends with its next message.
	if err := guard.Check(t.Context(), fence.Token{Election: "orders", Number: 3}); err != nil {
		t.Fatal(err)
	}
	if err := echo(deposed); !errors.Is(fencegrpc.Refused(err), fence.ErrStale) {
		t.Errorf("the deposed leader's stream: %v", err)
	}
	if _, err := say(ctx, conn); status.Code(err) != codes.Aborted {
		t.Errorf("the deposed leader's call: %v", err)
	}

	// The view has ended: nothing leaves any more.
	end()
	if _, err := say(ctx, conn); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := grpctest.Talk(ctx, conn); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("a stream after the end: %v", err)
	}
	if err := stopped.SendMsg(wrapperspb.String("late")); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("a message after the end: %v", err)
	}
	if err := stopped.CloseSend(); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("closing after the end: %v", err)
	}
	if _, err := say(t.Context(), conn); !errors.Is(err, fence.ErrNoGate) {
		t.Errorf("outside any leadership: %v", err)
	}
}

// What waits for its server when the view ends does not go out, when the server is
// there at last; nor does the view's end leave it waiting.
func TestNothingIsSentThatWaitedForItsServer(t *testing.T) {
	t.Run("the server comes", func(t *testing.T) {
		for range 10 { // a call may by chance see the end before the server
			waitForServer(t, true)
		}
	})
	t.Run("it does not", func(t *testing.T) { waitForServer(t, false) })
}

// waitForServer makes calls that wait for their server when the view ends.
func waitForServer(t *testing.T, serverComes bool) {
	t.Helper()
	gate, end := fencetest.Lead(t)
	guard := fence.NewGuard("orders", 0)
	addr := listen(t, guard)
	dials, ended := make(chan struct{}, 100), make(chan struct{})
	conn := grpctest.Dial(t, "passthrough:///"+addr, append(leader(), grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		dials <- struct{}{}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}))...)
	ctx := fence.WithGate(t.Context(), gate)
	told := make(chan error)
	go func() {
		_, err := say(ctx, conn, grpc.WaitForReady(true))
		told <- err
	}()
	go func() {
		s, err := grpctest.Talk(ctx, conn, grpc.WaitForReady(true))
		if err == nil {
			err = s.RecvMsg(new(wrapperspb.StringValue))
		}
		told <- err
	}()
	<-dials
	end()
	if serverComes {
		close(ended)
	}
	for range 2 {
		if err := <-told; !errors.Is(err, leaderelection.ErrNotLeading) {
			t.Errorf("the caller is told %v", err)
		}
	}
	if n := guard.Greatest(); n != 0 {
		t.Errorf("a call with token %d arrived", n)
	}
}

// A call that is under way when the view ends is not waited for, and it is not said
// that it was not sent.
func TestCallUnderWayWhenTheViewEnds(t *testing.T) {
	gate, end := fencetest.Lead(t)
	guard := fence.NewGuard("orders", 0)
	conn := serve(t, guard, leader()...)
	arrived := make(chan struct{})
	guard.Confirm = func(ctx context.Context, _ fence.Token) error {
		close(arrived)
		<-ctx.Done() // the server hears of it
		return ctx.Err()
	}
	go func() { <-arrived; end() }()
	_, err := say(fence.WithGate(t.Context(), gate), conn)
	if status.Code(err) != codes.Canceled || errors.Is(err, leaderelection.ErrNotLeading) || !strings.Contains(err.Error(), "may have arrived") {
		t.Errorf("%v", err)
	}
}

// A method that only reads shuts nobody out, whatever token comes with it. It may have none, but none that
// cannot be read. Methods that are exempt are served whatever token they have.
func TestReadOnlyAndExemptMethodsRaiseNothing(t *testing.T) {
	guard := fence.NewGuard("orders", 5)
	o := &fencegrpc.ServerOptions{
		Exempt:   func(method string) bool { return method == "/test.Test/Health" },
		ReadOnly: func(method string) bool { return method == "/test.Test/Read" },
	}
	unary, stream := fencegrpc.UnaryServerInterceptor(guard, o), fencegrpc.StreamServerInterceptor(guard, o)
	for _, c := range []struct {
		method, token string
		code          codes.Code
	}{
		{"Health", "", codes.OK},
		{"Health", "orders:4", codes.OK},
		{"Health", "orders:99", codes.OK},
		{"Health", "nonsense", codes.OK},
		{"Read", "", codes.OK},
		{"Read", "orders:9223372036854775807", codes.OK},
		{"Read", "orders:4", codes.Aborted},
		{"Read", "nonsense", codes.InvalidArgument},
		{"Read", "others:9", codes.InvalidArgument},
		{"Put", "", codes.FailedPrecondition},
		{"Put", "orders:5", codes.OK},
	} {
		md := metadata.MD{}
		if c.token != "" {
			md.Set(fencegrpc.Key, c.token)
		}
		ctx, method := metadata.NewIncomingContext(t.Context(), md), "/test.Test/"+c.method
		_, err := unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
		if status.Code(err) != c.code {
			t.Errorf("%s with %q: %v", c.method, c.token, err)
		}
		err = stream(nil, serverStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, s grpc.ServerStream) error { return s.RecvMsg(nil) })
		if status.Code(err) != c.code {
			t.Errorf("stream %s with %q: %v", c.method, c.token, err)
		}
	}
	if guard.Greatest() != 5 {
		t.Errorf("the guard has seen %d", guard.Greatest())
	}
}

type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s serverStream) Context() context.Context { return s.ctx }
func (s serverStream) RecvMsg(any) error        { return nil }

// named are credentials that say which they are.
type named struct {
	name   string
	secret bool
	fail   error
}

func (n named) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"name": n.name, fencegrpc.Key: "orders:99"}, n.fail
}
func (n named) RequireTransportSecurity() bool { return n.secret }

// The caller's credentials are those that gRPC would take, and as secret as they were, but no token of its
// own making. If they fail, so does the call. The caller's options and metadata stay as they are.
func TestCallersOptions(t *testing.T) {
	gate, _ := fencetest.Lead(t)
	for secret, fail := range map[bool]error{false: nil, true: errors.New("no credentials")} {
		options := make([]grpc.CallOption, 2, 3)
		options[0], options[1] = grpc.PerRPCCredentials(named{"first", !secret, nil}), grpc.PerRPCCredentials(named{"last", secret, fail})
		behind := options[:3]
		behind[2] = grpc.WaitForReady(true)
		md := metadata.Pairs(fencegrpc.Key, "orders:99", "other", "kept")
		ctx := metadata.NewOutgoingContext(fence.WithGate(t.Context(), gate), md)
		err := fencegrpc.UnaryClientInterceptor()(ctx, "/test.Test/Put", nil, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, o ...grpc.CallOption) error {
			creds := o[len(o)-1].(grpc.PerRPCCredsCallOption).Creds
			if creds.RequireTransportSecurity() != secret {
				t.Errorf("secret: %v, want %v", !secret, secret)
			}
			all, err := creds.GetRequestMetadata(ctx)
			if err != fail || err == nil && (all["name"] != "last" || all[fencegrpc.Key] != "orders:2") {
				t.Errorf("sent is %v, %v", all, err)
			}
			if sent, _ := metadata.FromOutgoingContext(ctx); len(sent.Get(fencegrpc.Key)) > 0 || len(sent.Get("other")) != 1 {
				t.Errorf("the call's metadata are %v", sent)
			}
			return nil
		}, options...)
		if err != nil {
			t.Error(err)
		}
		if _, is := behind[2].(grpc.FailFastCallOption); !is {
			t.Errorf("the caller's option is now %T", behind[2])
		}
		if len(md.Get(fencegrpc.Key)) != 1 {
			t.Errorf("the caller's metadata are now %v", md)
		}
	}
}

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
