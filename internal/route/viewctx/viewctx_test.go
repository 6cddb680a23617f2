//go:build go1.25

package viewctx_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route/viewctx"
	"github.com/c8e606e4/leaderelection/viewtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type key struct{}

// A Context ends with its view, its parent or by Stop, whichever is first, and
// says why; also to those derived from it, and to those who ask late.
func TestContext(t *testing.T) {
	own := errors.New("own")
	for name, c := range map[string]struct {
		end   func(v *viewtest.View, parent context.CancelCauseFunc, c *viewctx.Context)
		after time.Duration // at most
		cause error
	}{
		"the view's time":    {func(*viewtest.View, context.CancelCauseFunc, *viewctx.Context) {}, 10 * time.Second, le.ErrNotLeading},
		"the view is cut":    {func(v *viewtest.View, _ context.CancelCauseFunc, _ *viewctx.Context) { v.Set(time.Now()) }, viewctx.CheckEvery, le.ErrNotLeading},
		"the parent":         {func(_ *viewtest.View, cancel context.CancelCauseFunc, _ *viewctx.Context) { cancel(own) }, 0, own},
		"stopped, by itself": {func(_ *viewtest.View, _ context.CancelCauseFunc, c *viewctx.Context) { c.Stop() }, 0, context.Canceled},
	} {
		for _, late := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					view := viewtest.New(nil, 0)
					view.Set(time.Now().Add(10 * time.Second))
					parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
					defer cancel(nil)
					ctx := viewctx.New(parent, view)
					defer ctx.Stop()
					if ctx.Err() != nil || ctx.Value(key{}) != "value" {
						t.Error(ctx.Err(), ctx.Value(key{}))
					}
					if late {
						c.end(view, cancel, ctx)
						time.Sleep(c.after)
						synctest.Wait()
					}
					derived, done := context.WithCancel(ctx)
					defer done()
					begin := time.Now()
					if !late {
						c.end(view, cancel, ctx)
					}
					<-derived.Done()
					if took := time.Since(begin); took > c.after {
						t.Errorf("it ended after %v", took)
					}
					for _, x := range []context.Context{ctx, derived} {
						if x.Err() == nil || !errors.Is(context.Cause(x), c.cause) || x.Value(key{}) != "value" {
							t.Errorf("%v, cause %v", x.Err(), context.Cause(x))
						}
					}
				})
			})
		}
	}
}

// Until somebody waits for it, a Context has no goroutine; Err looks at the view.
func TestContextIsLazy(t *testing.T) {
	view := viewtest.New(nil, 0)
	view.Set(time.Now().Add(time.Hour))
	ctx := viewctx.New(t.Context(), view) // never stopped: goleak would tell
	if ctx.Err() != nil {
		t.Error(ctx.Err())
	}
	view.Set(time.Now())
	if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), le.ErrNotLeading) {
		t.Error(ctx.Err(), context.Cause(ctx))
	}
}
