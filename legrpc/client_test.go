package legrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/legrpc"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// standby is a Candidate that does not lead.
func standby() *leads { return &leads{view: viewtest.New(nil, 0), status: le.Following} }

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

// A leader that relays the refusal of a service behind another election has worked
// on the call: it is not said to be unprocessed, and not sent again.
func TestRelayedRefusalIsNotRepeated(t *testing.T) {
	other := dial(t, serveWith(t, standby(), echo("never"), &legrpc.ServerOptions{Election: "users"}))
	unnamed := dial(t, serveWith(t, standby(), echo("never"), nil))
	var calls atomic.Int32
	for name, c := range map[string]struct {
		server  *grpc.ClientConn // that the leader passes its calls to
		wrapped bool
		exempt  bool // the leader's interceptor lets the method pass
	}{
		"as it is":                   {unnamed, false, false},
		"wrapped":                    {unnamed, true, false},
		"of a named election":        {other, false, false},
		"by a method that is exempt": {unnamed, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			relay := func(ctx context.Context) error {
				calls.Add(1)
				_, err := say(ctx, c.server, "x")
				if c.wrapped {
					err = fmt.Errorf("asking the other service: %w", err)
				}
				return err
			}
			leader := &service{
				say:  func(ctx context.Context, _ string) (string, error) { return "", relay(ctx) },
				talk: func(s grpc.ServerStream) error { return relay(s.Context()) },
			}
			o := &legrpc.ServerOptions{}
			if c.exempt {
				o.Exempt = func(string) bool { return true }
			}
			conn := dial(t, serveWith(t, leading(), leader, o), retrying(nil)...)
			for kind, call := range map[string]func() error{
				"unary":  func() error { _, err := say(t.Context(), conn, "x"); return err },
				"stream": func() error { _, err := once(t.Context(), conn, "x"); return err },
			} {
				calls.Store(0)
				err := call()
				if r, is := legrpc.RefusalOf(err); is || status.Code(err) != codes.FailedPrecondition || calls.Load() != 1 || !strings.Contains(err.Error(), "does not lead") {
					t.Errorf("%s: %v, a refusal: %v %+v; worked on %d times", kind, err, is, r, calls.Load())
				}
			}
		})
	}
	// A leader without the interceptors: the election's name tells.
	bare := dial(t, serveWith(t, standby(), echo("never"), &legrpc.ServerOptions{Election: "users"}), retrying(&legrpc.ClientOptions{Election: "orders", Wait: time.Hour})...)
	_, err := say(t.Context(), bare, "x")
	if r, is := legrpc.RefusalOf(err); !is || r.Election != "users" {
		t.Errorf("%v, %+v", err, r)
	}
}

// Of all errors only a refusal before any work is sent again, and that until the
// server leads or patience ends.
func TestClientRepeatsOnlyWhatWasNotProcessed(t *testing.T) {
	var calls atomic.Int32
	answer := func() error { return nil }
	l := leading()
	conn := dial(t, serveWith(t, l, &service{
		say: func(_ context.Context, in string) (string, error) { calls.Add(1); return in, answer() },
		talk: func(s grpc.ServerStream) error {
			calls.Add(1)
			in := new(wrapperspb.StringValue)
			if err := s.RecvMsg(in); err != nil {
				return err
			}
			if err := answer(); err != nil {
				return err
			}
			return s.SendMsg(in)
		},
	}, &legrpc.ServerOptions{Election: "orders"}), retrying(&legrpc.ClientOptions{Election: "orders", Wait: time.Minute})...)
	for kind, call := range map[string]func(context.Context) (string, error){
		"unary":  func(ctx context.Context) (string, error) { return say(ctx, conn, "hello") },
		"stream": func(ctx context.Context) (string, error) { return once(ctx, conn, "hello") },
	} {
		t.Run(kind, func(t *testing.T) {
			calls.Store(0)
			for _, own := range []error{status.Error(codes.FailedPrecondition, "own"), status.Error(codes.Unavailable, "own")} {
				answer = func() error { return own }
				if _, err := call(t.Context()); status.Code(err) != status.Code(own) {
					t.Errorf("%v became %v", own, err)
				}
			}
			if n := calls.Load(); n != 2 {
				t.Errorf("two calls were worked on %d times", n)
			}
			answer = func() error { l.over(); return nil }
			_, err := call(t.Context())
			if r, is := legrpc.RefusalOf(err); !is || !r.Processed || calls.Load() != 3 {
				t.Errorf("overtaken by the end: %v, %+v, worked on %d times in all", err, r, calls.Load())
			}

			answer = func() error { return nil }
			l.set(func() { l.status = le.Following })
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := call(ctx); err == nil || calls.Load() != 3 {
				t.Errorf("%v, worked on %d times in all", err, calls.Load())
			}
			time.AfterFunc(100*time.Millisecond, func() { l.set(func() { l.view, l.status = leading().view, le.Leading }) })
			if _, err := call(t.Context()); err != nil || calls.Load() != 4 {
				t.Errorf("when it leads again: %v, worked on %d times in all", err, calls.Load())
			}
		})
	}
}

// A refusal names nobody.
func TestRefusalNamesNobody(t *testing.T) {
	l := standby()
	l.entry = *record(7, "leader-7", "10.0.0.2:1")
	_, err := say(t.Context(), dial(t, serve(t, l, echo("a"))), "x")
	if r, is := legrpc.RefusalOf(err); !is || strings.Contains(err.Error(), "leader-7") || strings.Contains(err.Error(), "10.0.0.2") {
		t.Errorf("%v, %+v", err, r)
	}
}

// A unary handler that waits for its ctx does not linger when leadership is lost.
func TestUnaryHandlerEndsWithTheView(t *testing.T) {
	l := leading()
	conn := dial(t, serve(t, l, &service{say: func(ctx context.Context, _ string) (string, error) {
		l.over()
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, le.ErrNotLeading) {
			t.Errorf("the cause is %v", cause)
		}
		return "", ctx.Err()
	}}))
	_, err := say(t.Context(), conn, "x")
	if r, is := legrpc.RefusalOf(err); !is || !r.Processed {
		t.Errorf("%v, %+v", err, r)
	}
}

// hung is a server that takes calls, and does not answer.
func hung(t *testing.T) (address string, called chan struct{}) {
	t.Helper()
	called = make(chan struct{}, 10)
	over := make(chan struct{})
	address = serve(t, leading(), &service{say: func(context.Context, string) (string, error) {
		called <- struct{}{}
		<-over // whatever its ctx says
		return "", nil
	}})
	t.Cleanup(func() { close(over) })
	return address, called
}

// Calls leave a leader that is silent when the next one is there; those of a leader
// that is still at work are left alone.
func TestCallsLeaveAHungLeader(t *testing.T) {
	d := memory.NewDecider()
	conn := follow(t, d.Handle(), S)
	address, called := hung(t)
	d.Replace(record(1, "a", address))
	told := make(chan error)
	go func() { _, err := say(t.Context(), conn, "x", grpc.WaitForReady(true)); told <- err }()
	<-called
	d.Replace(record(2, "b", serve(t, leading(), echo("b"))))
	if err := <-told; status.Code(err) != codes.Unavailable {
		t.Errorf("the call at the hung leader: %v", err)
	}
	if out, err := say(t.Context(), conn, "x", grpc.WaitForReady(true)); out != "b x" {
		t.Errorf("the next call: %q, %v", out, err)
	}
}

func TestCallsOfAWorkingLeaderAreLeftAlone(t *testing.T) {
	d := memory.NewDecider()
	conn := follow(t, d.Handle(), S)
	address := serve(t, leading(), &service{talk: func(s grpc.ServerStream) error {
		for tick := time.NewTicker(100 * time.Millisecond); ; <-tick.C {
			if err := s.SendMsg(wrapperspb.String("x")); err != nil {
				return err
			}
		}
	}})
	d.Replace(record(1, "a", address))
	s, err := conn.NewStream(t.Context(), &description.Streams[0], "/test.Test/Talk", grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 25 { // it is for the server's interceptor to end this
		if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
			t.Fatal(i, err)
		}
		if i == 2 {
			d.Replace(record(2, "b", "127.0.0.1:1"))
		}
	}
	_ = conn.Close()
	for !errors.Is(err, io.EOF) && err == nil {
		err = s.RecvMsg(new(wrapperspb.StringValue))
	}
}

// The process behind the leader's first address may be another: the next is used.
func TestCallsGoToTheAddressThatLeads(t *testing.T) {
	d := memory.NewDecider()
	conn := follow(t, d.Handle(), S)
	d.Replace(record(1, "b", serve(t, standby(), echo("wrong")), serve(t, leading(), echo("right"))))
	for range 3 {
		if out, err := say(t.Context(), conn, "x", grpc.WaitForReady(true)); out != "right x" {
			t.Errorf("%q, %v", out, err)
		}
	}
}

// A record cannot send calls, with their credentials, to anywhere.
func TestCheckAddress(t *testing.T) {
	only := func(hostPort string) error {
		if !strings.HasPrefix(hostPort, "10.") {
			return errors.New("none of ours")
		}
		return nil
	}
	for name, c := range map[string]struct {
		check    func(string) error
		hostPort []string
		want     string
	}{
		"link-local":           {nil, []string{"169.254.169.254:80"}, ""},
		"the good one of two":  {nil, []string{"[fe80::1]:80", "192.0.2.1:80"}, "192.0.2.1:80"},
		"the caller's own":     {only, []string{"192.0.2.1:80", "10.0.0.1:80"}, "10.0.0.1:80"},
		"none of the caller's": {only, []string{"192.0.2.1:80"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(record(1, "a", c.hostPort...))
			b := legrpc.NewBuilder(le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S}, &legrpc.BuilderOptions{CheckAddress: c.check})
			cc := &told{}
			r, err := b.Build(resolver.Target{}, cc, resolver.BuildOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for ; ; runtime.Gosched() {
				if got, n := cc.last(); n > 0 {
					if got != c.want {
						t.Errorf("gRPC is told %q, want %q", got, c.want)
					}
					break
				}
			}
		})
	}
}

// A name that resolves to what is refused is not dialled.
func TestDialChecksWhatANameResolvesTo(t *testing.T) {
	routetest.Resolve(t, [4]byte{169, 254, 169, 254})
	d := memory.NewDecider()
	d.Replace(record(1, "a", "leader.example:1"))
	_, err := say(t.Context(), follow(t, d.Handle(), S), "x", grpc.WaitForReady(false))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "169.254.169.254 is refused") {
		t.Errorf("%v", err)
	}
}
