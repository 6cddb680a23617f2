package etcd_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// faulty is a client to whose calls something happens.
type faulty struct{ happens atomic.Pointer[happening] }

// happening does a call, or not.
type happening func(ctx context.Context, call func() error) error

func (f *faulty) client(t testing.TB, endpoint string) *clientv3.Client {
	between := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		call := func() error { return invoke(ctx, method, req, reply, cc, opts...) }
		if h := f.happens.Load(); h != nil && method == "/etcdserverpb.KV/Txn" {
			return (*h)(ctx, call)
		}
		return call()
	}
	return clientOf(t, clientv3.Config{Endpoints: []string{endpoint}, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(between)}})
}

// A leader whose writes go wrong, each in the same way for a while, but not for as
// long as its view lasts, keeps its leadership: it never takes its own write for another's.
func TestLeaderKeepsItsLeadership(t *testing.T) {
	stores.Nightly(t, "it waits for the client to give up")
	server := stores.Etcd(t)
	for name, h := range map[string]happening{
		"answers lost": func(_ context.Context, call func() error) error {
			_ = call()
			return status.Error(codes.Unavailable, "the connection was lost")
		},
		"answers after the attempt's time": func(ctx context.Context, call func() error) error {
			err := call()
			<-ctx.Done()
			return fmt.Errorf("%w (%v)", ctx.Err(), err)
		},
		"requests lost": func(ctx context.Context, _ func() error) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"unavailable": func(context.Context, func() error) error {
			return status.Error(codes.Unavailable, "etcdserver: no leader")
		},
		"too many requests": func(context.Context, func() error) error {
			return status.Error(codes.ResourceExhausted, "etcdserver: too many requests")
		},
		"written twice": func(_ context.Context, call func() error) error { // the second one is refused
			_ = call()
			return call()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &faulty{}
			elected := make(chan context.Context, 10)
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			c, err := leaderelection.Config{
				Decider: etcd.NewDecider(f.client(t, server.Endpoint), feedtest.Unique(), nil), LeaderID: "a", TermLength: 4 * time.Second, ClockPolicy: leaderelection.SharedClock,
				OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { elected <- ctx },
				Trace: &leaderelection.Trace{
					StoreOp: func(op leaderelection.StoreOp) {
						t.Logf("%v: %s took %v: %v", time.Since(began).Round(time.Millisecond), op.Kind, op.Duration, op.Err)
					},
				},
			}.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { cancel(); _ = c.Wait() }()
			leadership := <-elected
			view := c.View()
			for range 3 {
				// The extension is due when half of the view is gone. A third of
				// what is then left is trouble.
				before := view.Get()
				f.happens.Store(&h)
				end := time.NewTimer(2600 * time.Millisecond)
				select {
				case <-end.C:
				case <-leadership.Done():
					t.Fatalf("the leadership has ended: %v", context.Cause(leadership))
				}
				f.happens.Store(nil)
				for !view.Get().After(before) {
					select {
					case <-leadership.Done():
						t.Fatalf("the leadership has ended: %v", context.Cause(leadership))
					case <-time.After(5 * time.Millisecond):
					}
				}
			}
			if !view.ValueInFuture() || len(elected) > 0 {
				t.Errorf("the view is over, or there was another leadership (%d)", len(elected))
			}
		})
	}
}
