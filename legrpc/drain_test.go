package legrpc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
	"github.com/c8e606e4/leaderelection/legrpc"
)

// elected starts a campaign without callbacks, and returns when it leads.
func elected(t *testing.T, d *memory.Decider) (c *le.Campaign, stop context.CancelFunc) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c, err := le.Config{Decider: d.Handle(), LeaderID: "a", HostPort: []string{"127.0.0.1:1"}, OnElected: func(context.Context, *le.TimeView) {}}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for !c.View().ValueInFuture() {
		time.Sleep(S)
	}
	synctest.Wait()
	return c, stop
}

// kinds calls a handler through each server interceptor, without a network.
func kinds(c le.Candidate, o *legrpc.ServerOptions) map[string]func(handle func(context.Context)) error {
	unary, stream := legrpc.UnaryServerInterceptor(c, o), legrpc.StreamServerInterceptor(c, o)
	return map[string]func(func(context.Context)) error{
		"unary": func(handle func(context.Context)) error {
			_, err := unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/test.Test/Say"}, func(ctx context.Context, _ any) (any, error) {
				handle(ctx)
				return nil, nil
			})
			return err
		},
		"stream": func(handle func(context.Context)) error {
			return stream(nil, viewStream{ctx: context.Background()}, &grpc.StreamServerInfo{FullMethod: "/test.Test/Talk"}, func(_ any, s grpc.ServerStream) error {
				handle(s.Context())
				return nil
			})
		},
	}
}

// The lease is kept until the calls that were let in have returned. Meanwhile calls are refused in a
// way that lets them be sent again.
func TestCallsThatWereLetInKeepTheLease(t *testing.T) {
	for _, kind := range []string{"unary", "stream"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memory.NewDecider()
				c, stop := elected(t, d)
				call := kinds(c, nil)[kind]
				finish, result := make(chan struct{}), make(chan error)
				go func() { result <- call(func(context.Context) { <-finish }) }()
				synctest.Wait()
				stop()
				time.Sleep(5 * S)
				err := call(func(context.Context) { t.Error("a call is served while leadership is being given up") })
				if r, is := legrpc.RefusalOf(err); status.Code(err) != codes.FailedPrecondition || !is || r.Processed {
					t.Errorf("%v, %+v", err, r)
				}
				if !c.View().ValueInFuture() || d.Entry().Vacant() {
					t.Error("the lease is not kept for the call")
				}
				close(finish)
				if err := <-result; err != nil {
					t.Errorf("the call that was let in: %v", err)
				}
				synctest.Wait()
				if c.View().ValueInFuture() || !d.Entry().Vacant() {
					t.Error("the lease is kept although the call has returned")
				}
				<-c.Done()
			})
		})
	}
}

// A call that panics, or is refused after all, does not keep the lease.
func TestCallsThatAreGoneKeepNoLease(t *testing.T) {
	for _, kind := range []string{"unary", "stream"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memory.NewDecider()
				c, stop := elected(t, d)
				func() {
					defer func() { _ = recover() }()
					_ = kinds(c, nil)[kind](func(context.Context) { panic("a handler's fault") })
				}()
				if err := kinds(unready{c}, nil)[kind](func(context.Context) {}); status.Code(err) != codes.FailedPrecondition {
					t.Error(err)
				}
				stop()
				synctest.Wait()
				if !d.Entry().Vacant() {
					t.Error("the lease is kept for a call that is gone")
				}
				<-c.Done()
			})
		})
	}
}

// unready leads, and says that it drains.
type unready struct{ le.Candidate }

func (unready) Status() le.Status { return le.Draining }

// A subscription does not keep the lease: its ctx ends when leadership is being given up.
func TestEndlessCallsAreNotWaitedFor(t *testing.T) {
	for _, kind := range []string{"unary", "stream"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memory.NewDecider()
				c, stop := elected(t, d)
				result := make(chan error)
				go func() {
					result <- kinds(c, &legrpc.ServerOptions{Endless: func(string) bool { return true }})[kind](func(ctx context.Context) {
						if le.ViewFrom(ctx) != c.View() {
							t.Error("the handler has another view")
						}
						<-ctx.Done()
						if cause := context.Cause(ctx); !errors.Is(cause, le.ErrNotLeading) || !c.View().ValueInFuture() {
							t.Errorf("told by %v; the view lasts: %v", cause, c.View().ValueInFuture())
						}
					})
				}()
				synctest.Wait()
				stop()
				begin := time.Now()
				if r, is := legrpc.RefusalOf(<-result); !is || !r.Processed {
					t.Errorf("the client is told %+v", r)
				}
				<-c.Done()
				if took := time.Since(begin); took > 2*S || !d.Entry().Vacant() {
					t.Errorf("released after %v: %v", took, d.Entry().Vacant())
				}
			})
		})
	}
}

// A handler that sends to a client that does not read is not stuck for good: it would keep the campaign from ending, and
// the process.
func TestSendingEndsWithTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := routetest.NewPipes(), leading()
		server := grpc.NewServer(grpc.ChainStreamInterceptor(legrpc.StreamServerInterceptor(l, nil)))
		returned := make(chan error, 1)
		server.RegisterService(&description, &service{talk: func(s grpc.ServerStream) error {
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
		l.over()
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
