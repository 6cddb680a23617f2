package legrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/legrpc"
	"github.com/c8e606e4/leaderelection/adapters/legrpc/internal/grpctest"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
	"github.com/c8e606e4/leaderelection/shard"
	"github.com/c8e606e4/leaderelection/viewtest"
)

func TestUnaryInterceptor(t *testing.T) {
	l := leading()
	l.SetLeader(*record(7, "leader-7", "10.0.0.2:1"))
	called := false
	handler := func(string) error { return nil }
	conn := dial(t, serve(t, l, &service{Say: func(_ context.Context, in string) (string, error) {
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
		lead(l)
		handler = func(string) error { over(l); return own }
		out, err := say(t.Context(), conn, "x")
		r, is := legrpc.RefusalOf(err)
		if status.Code(err) != codes.Unavailable || !is || !r.Processed || out != "" {
			t.Errorf("%q, %v, %+v", out, err, r)
		}
	}

	// It leads no more. The refusal names nobody.
	called = false
	for _, s := range []le.Status{le.Following, le.Draining} {
		lead(l)
		l.SetStatus(s)
		_, err := say(t.Context(), conn, "x")
		r, is := legrpc.RefusalOf(fmt.Errorf("wrapped: %w", err))
		if status.Code(err) != codes.FailedPrecondition || !is || r != (legrpc.Refusal{}) || called || strings.Contains(err.Error(), "leader-7") || strings.Contains(err.Error(), "10.0.0.2") {
			t.Errorf("%v: %v, %+v, called: %v", s, err, r, called)
		}
	}
}

func TestStreamInterceptor(t *testing.T) {
	for name, part := range map[string]func(l *viewtest.Candidate, s grpc.ServerStream) error{ // of the handler, after one answer
		"sending": func(l *viewtest.Candidate, s grpc.ServerStream) error {
			over(l)
			return s.SendMsg(wrapperspb.String("late"))
		},
		"sending although told": func(l *viewtest.Candidate, s grpc.ServerStream) error {
			over(l)
			_ = s.SendMsg(wrapperspb.String("late"))
			return nil
		},
		"receiving": func(l *viewtest.Candidate, s grpc.ServerStream) error {
			over(l)
			return s.RecvMsg(new(wrapperspb.StringValue)) // the client sends nothing more
		},
		"waiting": func(l *viewtest.Candidate, s grpc.ServerStream) error {
			over(l)
			<-s.Context().Done()
			if cause := context.Cause(s.Context()); !errors.Is(cause, le.ErrNotLeading) {
				t.Errorf("cause %v", cause)
			}
			return nil
		},
		"returning": func(l *viewtest.Candidate, s grpc.ServerStream) error { over(l); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := leading()
			conn := dial(t, serve(t, l, &service{Talk: func(s grpc.ServerStream) error {
				in := new(wrapperspb.StringValue)
				if err := s.RecvMsg(in); err != nil {
					return err
				}
				if err := s.SendMsg(in); err != nil {
					return err
				}
				return part(l, s)
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

// A handler that leadership changes hands under, so that its process leads again, has the view that
// it was let in with.
func TestTheHandlersViewIsItsOwn(t *testing.T) {
	for _, kind := range []string{"unary", "stream"} {
		l, called := viewtest.NewCandidate(nil), false
		l.Lead(1, time.Now().Add(time.Hour))
		first := l.View()
		err := interceptors{legrpc.UnaryServerInterceptor(l, nil), legrpc.StreamServerInterceptor(l, nil)}.call(kind, t.Context(), func(ctx context.Context) {
			called = true
			over(l)
			l.Lead(3, time.Now().Add(time.Hour))
			if v := le.ViewFrom(ctx); v != first || v.ValueInFuture() {
				t.Errorf("%s: the handler has token %d, %v", kind, v.ElectionNumber(), v.ValueInFuture())
			}
		})
		if r, is := legrpc.RefusalOf(err); !called || !is || !r.Processed {
			t.Errorf("%s: called: %v; %v", kind, called, err)
		}
	}
}

// held is what calls are let in under, and what must not be given up before they have returned.
type held struct {
	call  func(endless bool, handle func(context.Context)) error // through an interceptor, without a network
	refer func(context.Context) bool                             // whether a handler has it from its ctx
	stop  func()                                                 // tells it to be given up, without a wait
	lasts func() bool                                            // whether calls may still be answered
	done  func()                                                 // waits until it was given up
}

// interceptors call a handler, without a network.
type interceptors struct {
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor
}

func (i interceptors) call(kind string, ctx context.Context, handle func(context.Context)) error {
	if kind == "unary" {
		_, err := i.unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/test.Test/Say"}, func(ctx context.Context, _ any) (any, error) {
			handle(ctx)
			return nil, nil
		})
		return err
	}
	return i.stream(nil, viewStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/test.Test/Talk"}, func(_ any, s grpc.ServerStream) error {
		handle(s.Context())
		return nil
	})
}

// isEndless is an option Endless.
func isEndless(endless bool) func(string) bool { return func(string) bool { return endless } }

// led is the leadership of a campaign without callbacks, behind the interceptors of as(campaign).
func led(t *testing.T, kind string, as func(le.Candidate) le.Candidate) *held {
	d := memory.NewDecider()
	ctx, stop := context.WithCancel(context.Background())
	c := must(le.Config{Decider: d, LeaderID: "a", HostPort: []string{"127.0.0.1:1"}, OnElected: func(context.Context, *le.TimeView) {}}.Start(ctx))(t)
	for !c.View().ValueInFuture() {
		time.Sleep(S)
	}
	return &held{
		call: func(endless bool, handle func(context.Context)) error {
			o := &legrpc.ServerOptions{Endless: isEndless(endless)}
			return interceptors{legrpc.UnaryServerInterceptor(as(c), o), legrpc.StreamServerInterceptor(as(c), o)}.call(kind, context.Background(), handle)
		},
		refer: func(ctx context.Context) bool { return le.ViewFrom(ctx) == c.View() },
		stop:  stop,
		lasts: func() bool { return c.View().ValueInFuture() && !d.Entry().Vacant() },
		done:  func() { <-c.Done() },
	}
}

// owned is a shard of a member that does nothing else with it, behind the interceptors of as(member).
func owned(t *testing.T, kind string, as func(shard.Owners) shard.Owners) *held {
	var r memgroup.Records
	m, err := shard.Config{Store: r.Store, MemberID: "a", Shards: shard.Numbered(2), ClockPolicy: le.SharedClock,
		OnOwned: func(context.Context, *shard.Owned) error { return nil }}.Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for len(m.Owned()) != 2 {
		time.Sleep(S)
	}
	o, _ := m.Shard("1")
	left := make(chan struct{})
	return &held{
		call: func(endless bool, handle func(context.Context)) error {
			o := &legrpc.ServerOptions{Endless: isEndless(endless)}
			ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(legrpc.ShardKey, "1"))
			return interceptors{legrpc.UnaryOwnerInterceptor(as(m), o), legrpc.StreamOwnerInterceptor(as(m), o)}.call(kind, ctx, handle)
		},
		refer: func(ctx context.Context) bool { return shard.OwnedFrom(ctx) == o },
		stop: func() {
			go func() {
				defer close(left)
				_ = m.Leave(context.Background())
			}()
		},
		lasts: o.ValueInFuture,
		done:  func() { <-left },
	}
}

func same[T any](c T) T { return c }

// eachHeld runs a test for each interceptor, in a bubble. As is what the interceptors believe.
func eachHeld(t *testing.T, leader func(le.Candidate) le.Candidate, owners func(shard.Owners) shard.Owners, test func(t *testing.T, h *held)) {
	for _, kind := range []string{"unary", "stream"} {
		t.Run("leader/"+kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, led(t, kind, leader)) })
		})
		t.Run("owner/"+kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, owned(t, kind, owners)) })
		})
	}
}

// The lease, or the shard, is kept until the calls that were let in have returned. Meanwhile calls are
// refused in a way that lets them be sent again.
func TestCallsThatWereLetInKeepTheLease(t *testing.T) {
	eachHeld(t, same, same, func(t *testing.T, h *held) {
		finish, result := make(chan struct{}), make(chan error)
		go func() { result <- h.call(false, func(context.Context) { <-finish }) }()
		synctest.Wait()
		h.stop()
		time.Sleep(5 * S)
		err := h.call(false, func(context.Context) { t.Error("a call is served while leadership is being given up") })
		if r, is := legrpc.RefusalOf(err); status.Code(err) != codes.FailedPrecondition || !is || r.Processed {
			t.Errorf("%v, %+v", err, r)
		}
		if !h.lasts() {
			t.Error("the lease is not kept for the call")
		}
		close(finish)
		if err := <-result; err != nil {
			t.Errorf("the call that was let in: %v", err)
		}
		synctest.Wait()
		if h.lasts() {
			t.Error("the lease is kept although the call has returned")
		}
		h.done()
	})
}

// A call that panics, or is refused after all, does not keep the lease, or the shard.
func TestCallsThatAreGoneKeepNoLease(t *testing.T) {
	refuses := false
	eachHeld(t, func(c le.Candidate) le.Candidate { return unready{c, &refuses} }, func(o shard.Owners) shard.Owners { return disowning{o, &refuses} }, func(t *testing.T, h *held) {
		func() {
			defer func() { _ = recover() }()
			_ = h.call(false, func(context.Context) { panic("a handler's fault") })
		}()
		refuses = true
		defer func() { refuses = false }()
		if err := h.call(false, func(context.Context) {}); status.Code(err) != codes.FailedPrecondition {
			t.Error(err)
		}
		h.stop()
		synctest.Wait()
		if h.lasts() {
			t.Error("the lease is kept for a call that is gone")
		}
		h.done()
	})
}

// unready leads, and says that it drains if it refuses.
type unready struct {
	le.Candidate
	refuses *bool
}

func (u unready) Status() le.Status {
	if *u.refuses {
		return le.Draining
	}
	return u.Candidate.Status()
}

// disowning owns its shards, and says that it may act on none if it refuses.
type disowning struct {
	shard.Owners
	refuses *bool
}

func (d disowning) Shard(name string) (*shard.Owned, bool) {
	o, may := d.Owners.Shard(name)
	return o, may && !*d.refuses
}

// A subscription does not keep the lease, or the shard: its ctx ends when that is being given up.
func TestEndlessCallsAreNotWaitedFor(t *testing.T) {
	eachHeld(t, same, same, func(t *testing.T, h *held) {
		result := make(chan error)
		go func() {
			result <- h.call(true, func(ctx context.Context) {
				if !h.refer(ctx) {
					t.Error("the handler has another view")
				}
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, le.ErrNotLeading) || !h.lasts() {
					t.Errorf("told by %v; it lasts: %v", cause, h.lasts())
				}
			})
		}()
		synctest.Wait()
		h.stop()
		begin := time.Now()
		if r, is := legrpc.RefusalOf(<-result); !is || !r.Processed {
			t.Errorf("the client is told %+v", r)
		}
		h.done()
		if took := time.Since(begin); took > 2*S || h.lasts() {
			t.Errorf("given up after %v; it lasts: %v", took, h.lasts())
		}
	})
}

// A handler that sends to a client that does not read is not stuck for good: it would keep the campaign from ending, and
// the process.
func TestSendingEndsWithTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := routetest.NewPipes(), leading()
		server := grpc.NewServer(grpc.ChainStreamInterceptor(legrpc.StreamServerInterceptor(l, nil)))
		returned := make(chan error, 1)
		server.RegisterService(&grpctest.Description, &service{Talk: func(s grpc.ServerStream) error {
			for {
				if err := s.SendMsg(wrapperspb.String(strings.Repeat("x", 1<<20))); err != nil {
					returned <- err
					return err
				}
			}
		}})
		go func() { _ = server.Serve(p) }()
		conn := through(t, p, "passthrough:///a")
		talk(t, conn)
		synctest.Wait() // the handler sends no more
		over(l)
		select {
		case err := <-returned:
			if r, is := legrpc.RefusalOf(err); !is || !r.Processed {
				t.Errorf("%v, %+v", err, r)
			}
		case <-time.After(time.Minute):
			t.Error("the handler is stuck")
		}
		_ = conn.Close()
		server.Stop()
	})
}

func TestHealth(t *testing.T) {
	l := leading()
	h := healthpb.NewHealthClient(dial(t, serve(t, l, echo("a"))))
	check := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		t.Helper()
		r := must(h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service}))(t)
		return r.Status
	}
	watch := must(h.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "test.Test"}))(t)
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
	l.SetStatus(le.Draining)
	next(healthpb.HealthCheckResponse_NOT_SERVING)
	l.SetStatus(le.Leading)
	next(healthpb.HealthCheckResponse_SERVING)
	over(l)
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
	unknown := must(h.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "other"}))(t)
	if r, err := unknown.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		t.Error(r, err)
	}
}

// An election's name that is not UTF-8, which gRPC would refuse to send, is no excuse.
func TestRefusalOfAStrangeElection(t *testing.T) {
	if _, err := say(t.Context(), dial(t, serveWith(t, standby(), echo("a"), &legrpc.ServerOptions{Election: "\xff"})), "x"); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}
