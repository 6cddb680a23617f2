package fencegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
	"github.com/c8e606e4/leaderelection/legrpc/fencegrpc"
)

// reached counts what a Guard is asked.
type reached struct {
	*fence.Guard
	n atomic.Int32
}

func (r *reached) Check(ctx context.Context, t fence.Token) error {
	r.n.Add(1)
	return r.Guard.Check(ctx, t)
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
	guard := &reached{Guard: fence.NewGuard("orders", 0)}
	addr := listen(t, guard)
	dials, ended := make(chan struct{}, 100), make(chan struct{})
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(fencegrpc.UnaryClientInterceptor()), grpc.WithChainStreamInterceptor(fencegrpc.StreamClientInterceptor()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			dials <- struct{}{}
			select {
			case <-ended:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx := fence.WithGate(t.Context(), gate)
	told := make(chan error)
	go func() {
		out := new(wrapperspb.StringValue)
		told <- conn.Invoke(ctx, "/test.Test/Say", wrapperspb.String(""), out, grpc.WaitForReady(true))
	}()
	go func() {
		s, err := conn.NewStream(ctx, &description.Streams[0], "/test.Test/Talk", grpc.WaitForReady(true))
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
	if n := guard.n.Load(); n != 0 {
		t.Errorf("%d calls arrived", n)
	}
}

// A call that is under way when the view ends is not waited for, and it is not said
// that it was not sent.
func TestCallUnderWayWhenTheViewEnds(t *testing.T) {
	gate, end := fencetest.Lead(t)
	guard := fence.NewGuard("orders", 0)
	conn := serve(t, guard, grpc.WithUnaryInterceptor(fencegrpc.UnaryClientInterceptor()))
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

// credentials of the caller's own go with the token.
type credentials struct{ fail error }

func (c credentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer x", fencegrpc.Key: "orders:99"}, c.fail
}
func (credentials) RequireTransportSecurity() bool { return false }

func TestCredentialsOfTheCallersOwn(t *testing.T) {
	gate, _ := fencetest.Lead(t)
	guard := fence.NewGuard("orders", 0)
	var authorization []string
	guard.Confirm = func(ctx context.Context, _ fence.Token) error {
		authorization = metadata.ValueFromIncomingContext(ctx, "authorization")
		return nil
	}
	conn := serve(t, guard, grpc.WithUnaryInterceptor(fencegrpc.UnaryClientInterceptor()))
	ctx := fence.WithGate(t.Context(), gate)
	call := func(c credentials) error {
		return conn.Invoke(ctx, "/test.Test/Say", wrapperspb.String(""), new(wrapperspb.StringValue), grpc.PerRPCCredentials(c))
	}
	if err := call(credentials{}); err != nil || fmt.Sprint(authorization) != "[Bearer x]" || guard.Greatest() != 2 {
		t.Error(err, authorization, guard.Greatest())
	}
	if err := call(credentials{status.Error(codes.Unauthenticated, "no")}); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
}

// A method that only reads shuts nobody out, whatever token comes with it.
func TestReadOnlyMethodsRaiseNothing(t *testing.T) {
	guard := fence.NewGuard("orders", 5)
	o := &fencegrpc.ServerOptions{ReadOnly: func(method string) bool { return method == "/test.Test/Say" || method == "/test.Test/Talk" }}
	unary, stream := fencegrpc.UnaryServerInterceptor(guard, o), fencegrpc.StreamServerInterceptor(guard, o)
	for _, c := range []struct {
		method, token string
		code          codes.Code
	}{
		{"/test.Test/Say", "orders:9223372036854775807", codes.OK},
		{"/test.Test/Say", "orders:4", codes.Aborted},
		{"/test.Test/Say", "", codes.OK},
		{"/test.Test/Put", "", codes.FailedPrecondition},
		{"/test.Test/Put", "orders:5", codes.OK},
	} {
		ctx := carries(t, c.token)
		err := handle(ctx, unary, c.method)
		if status.Code(err) != c.code {
			t.Errorf("%s with %q: %v", c.method, c.token, err)
		}
		err = stream(nil, serverStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: c.method}, func(_ any, s grpc.ServerStream) error { return s.RecvMsg(nil) })
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
