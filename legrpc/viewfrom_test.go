package legrpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/legrpc"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// stream is a server's side without a client.
type viewStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s viewStream) Context() context.Context { return s.ctx }

// A handler that leadership changes hands under, so that its process leads again, has the view that
// it was let in with.
func TestTheHandlersViewIsItsOwn(t *testing.T) {
	for _, kind := range []string{"unary", "stream"} {
		l := leading()
		first := viewtest.New(nil, 1)
		first.Set(l.View().Get())
		l.set(func() { l.view = first })
		called := false
		handle := func(ctx context.Context) {
			called = true
			l.over()
			again := viewtest.New(nil, 3)
			again.Set(leading().View().Get())
			l.set(func() { l.view = again })
			if v := le.ViewFrom(ctx); v != first.TimeView || v.ValueInFuture() {
				t.Errorf("%s: the handler has token %d, %v", kind, v.ElectionNumber(), v.ValueInFuture())
			}
		}
		var err error
		if kind == "unary" {
			_, err = legrpc.UnaryServerInterceptor(l, nil)(t.Context(), nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
				handle(ctx)
				return nil, nil
			})
		} else {
			err = legrpc.StreamServerInterceptor(l, nil)(nil, viewStream{ctx: t.Context()}, &grpc.StreamServerInfo{}, func(_ any, s grpc.ServerStream) error {
				handle(s.Context())
				return nil
			})
		}
		if r, is := legrpc.RefusalOf(err); !called || !is || !r.Processed {
			t.Errorf("%s: called: %v; %v", kind, called, err)
		}
	}
}
