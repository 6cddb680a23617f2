package legrpc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/legrpc"
)

func TestUnaryInterceptor(t *testing.T) {
	l := leading()
	called := false
	handler := func(string) error { return nil }
	conn := dial(t, serve(t, l, &service{say: func(_ context.Context, in string) (string, error) {
		called = true
		return "answer to " + in, handler(in)
	}}))
	if out, err := say(t.Context(), conn, "x"); out != "answer to x" || err != nil {
		t.Fatal(out, err)
	}
	handler = func(string) error { return status.Error(codes.NotFound, "none") }
	if _, err := say(t.Context(), conn, "x"); status.Code(err) != codes.NotFound {
		t.Errorf("the handler's own error became %v", err)
	}
	if _, is := legrpc.RefusalOf(status.Error(codes.FailedPrecondition, "the application's own")); is {
		t.Error("the application's own error is taken for a refusal")
	}

	// The view ends while the handler works, with or without an error of its own.
	for _, own := range []error{nil, errors.New("own")} {
		l.set(func() { l.view, l.status = leading().view, le.Leading })
		handler = func(string) error { l.over(); return own }
		out, err := say(t.Context(), conn, "x")
		r, is := legrpc.RefusalOf(err)
		if status.Code(err) != codes.Unavailable || !is || !r.Processed || out != "" {
			t.Errorf("%q, %v, %+v", out, err, r)
		}
	}

	// It leads no more.
	called = false
	for _, s := range []le.Status{le.Following, le.Draining} {
		l.set(func() { l.view, l.status = leading().view, s })
		_, err := say(t.Context(), conn, "x")
		r, is := legrpc.RefusalOf(fmt.Errorf("wrapped: %w", err))
		if status.Code(err) != codes.FailedPrecondition || !is || r != (legrpc.Refusal{}) || called {
			t.Errorf("%v: %v, %+v, called: %v", s, err, r, called)
		}
	}
}

// An election's name that is not UTF-8, which gRPC would refuse to send, is no excuse.
func TestRefusalOfAStrangeElection(t *testing.T) {
	l := leading()
	l.over()
	if _, err := say(t.Context(), dial(t, serveWith(t, l, echo("a"), &legrpc.ServerOptions{Election: "\xff"})), "x"); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}

// talk opens a stream.
func talk(t testing.TB, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	s, err := conn.NewStream(t.Context(), &description.Streams[0], "/test.Test/Talk")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStreamInterceptor(t *testing.T) {
	for name, c := range map[string]struct {
		over func(l *leads, s grpc.ServerStream) error // the handler's part, after one answer
	}{
		"sending": {func(l *leads, s grpc.ServerStream) error {
			l.over()
			return s.SendMsg(wrapperspb.String("late"))
		}},
		"sending although told": {func(l *leads, s grpc.ServerStream) error {
			l.over()
			_ = s.SendMsg(wrapperspb.String("late"))
			return nil
		}},
		"receiving": {func(l *leads, s grpc.ServerStream) error {
			l.over()
			return s.RecvMsg(new(wrapperspb.StringValue)) // the client sends nothing more
		}},
		"waiting": {func(l *leads, s grpc.ServerStream) error {
			l.over()
			<-s.Context().Done()
			if cause := context.Cause(s.Context()); !errors.Is(cause, le.ErrNotLeading) {
				t.Errorf("cause %v", cause)
			}
			return nil
		}},
		"returning": {func(l *leads, s grpc.ServerStream) error { l.over(); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := leading()
			conn := dial(t, serve(t, l, &service{talk: func(s grpc.ServerStream) error {
				in := new(wrapperspb.StringValue)
				if err := s.RecvMsg(in); err != nil {
					return err
				}
				if err := s.SendMsg(in); err != nil {
					return err
				}
				return c.over(l, s)
			}}))
			s := talk(t, conn)
			out := new(wrapperspb.StringValue)
			if err := s.SendMsg(wrapperspb.String("x")); err != nil {
				t.Fatal(err)
			}
			if err := s.RecvMsg(out); err != nil || out.Value != "x" {
				t.Fatal(out, err)
			}
			err := s.RecvMsg(out)
			if r, is := legrpc.RefusalOf(err); status.Code(err) != codes.Unavailable || !is || !r.Processed {
				t.Errorf("%v %+v", err, r)
			}
			s = talk(t, conn)
			if err := s.RecvMsg(out); status.Code(err) != codes.FailedPrecondition {
				t.Errorf("a stream begun after the end: %v", err)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	l := leading()
	h := healthpb.NewHealthClient(dial(t, serve(t, l, echo("a"))))
	check := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		t.Helper()
		r, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status
	}
	watch, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "test.Test"})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if r, err := watch.Recv(); err != nil || r.Status != want {
			t.Fatalf("%v, %v, want %v", r, err, want)
		}
	}
	next(healthpb.HealthCheckResponse_SERVING)
	for _, name := range []string{"", "test.Test"} {
		if got := check(name); got != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v", name, got)
		}
	}
	l.set(func() { l.status = le.Draining })
	next(healthpb.HealthCheckResponse_NOT_SERVING)
	l.set(func() { l.status = le.Leading })
	next(healthpb.HealthCheckResponse_SERVING)
	l.over()
	next(healthpb.HealthCheckResponse_NOT_SERVING)
	if got := check(""); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Error(got)
	}
	all, err := h.List(t.Context(), &healthpb.HealthListRequest{})
	if err != nil || len(all.Statuses) != 2 || all.Statuses["test.Test"].Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Error(all, err)
	}
	if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	unknown, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := unknown.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		t.Error(r, err)
	}
}

// The names that a Health is given stay as they are: they may be part of another list.
func TestHealthKeepsTheNamesAsTheyAre(t *testing.T) {
	names := []string{"test.Test", "other.Other"}
	first := legrpc.NewHealth(leading(), names[:1]...)
	if names[1] != "other.Other" {
		t.Errorf("the caller's names are now %q", names)
	}
	names[0] = "renamed"
	if _, err := first.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "test.Test"}); err != nil {
		t.Error(err)
	}
}
