package fencegrpc_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
	"github.com/c8e606e4/leaderelection/legrpc/fencegrpc"
)

// Methods that are exempt are served whatever token they have, and it is not judged. One that only
// reads may have none, but none that cannot be read.
func TestExempt(t *testing.T) {
	guard := fence.NewGuard("orders", 5)
	unary := fencegrpc.UnaryServerInterceptor(guard, &fencegrpc.ServerOptions{
		Exempt:   func(method string) bool { return method == "/test.Test/Health" },
		ReadOnly: func(method string) bool { return method == "/test.Test/Read" },
	})
	for _, c := range []struct {
		method, token string
		code          codes.Code
	}{
		{"/test.Test/Health", "", codes.OK},
		{"/test.Test/Health", "orders:4", codes.OK},
		{"/test.Test/Health", "orders:99", codes.OK},
		{"/test.Test/Health", "nonsense", codes.OK},
		{"/test.Test/Read", "nonsense", codes.InvalidArgument},
		{"/test.Test/Read", "others:9", codes.InvalidArgument},
		{"/test.Test/Put", "", codes.FailedPrecondition},
	} {
		if err := handle(carries(t, c.token), unary, c.method); status.Code(err) != c.code {
			t.Errorf("%s with %q: %v", c.method, c.token, err)
		}
	}
	if guard.Greatest() != 5 {
		t.Errorf("the guard has seen %d", guard.Greatest())
	}
}

// Only a fence's refusal is one: another's may have the same words.
func TestRefusedByAnother(t *testing.T) {
	for domain, want := range map[string]error{"leaderelection/fence": fence.ErrStale, "example.com": nil} {
		s, err := status.New(codes.Aborted, "").WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: "FENCING_TOKEN_STALE"})
		if err != nil {
			t.Fatal(err)
		}
		if got := fencegrpc.Refused(s.Err()); !errors.Is(got, want) {
			t.Errorf("of %s: %v, want %v", domain, got, want)
		}
	}
}

// named are credentials that say which they are.
type named struct {
	name   string
	secret bool
}

func (n named) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"name": n.name}, nil
}
func (n named) RequireTransportSecurity() bool { return n.secret }

// The caller's credentials are those that gRPC would take, and as secret as they were; the
// caller's options and metadata stay as they are.
func TestCallersOptions(t *testing.T) {
	gate, _ := fencetest.Lead(t)
	for _, secret := range []bool{false, true} {
		options := make([]grpc.CallOption, 2, 3)
		options[0], options[1] = grpc.PerRPCCredentials(named{"first", !secret}), grpc.PerRPCCredentials(named{"last", secret})
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
			if err != nil || all["name"] != "last" || all[fencegrpc.Key] != "orders:2" {
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
