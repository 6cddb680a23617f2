// Package viewctx makes a ctx that ends with a view, for what is done under that
// view's leadership.
package viewctx

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// CheckEvery is how often a Context looks at its view: a view may end before its
// time, by release or by loss. So a ctx ends at most that much later.
const CheckEvery = time.Second

// View is until when something may be done: a *leaderelection.TimeView, or a shard that is
// owned.
type View interface {
	ValueInFuture() bool
	Get() time.Time
	Clock() clocks.Clock // that Get is by
}

// Context is its parent, and ends with a view as well, with the cause
// leaderelection.ErrNotLeading. It costs next to nothing until somebody waits for it.
type Context struct {
	context.Context // the parent
	view            View

	mu      sync.Mutex
	stopped bool
	cancel  context.CancelCauseFunc
	begun   atomic.Pointer[begun]
}

// begun is the ctx that is handed out, once anybody has asked for it.
type begun struct{ context.Context }

// New returns a Context, in which leaderelection.ViewFrom finds a view that is a TimeView.
// Stop it when what is done under it is over.
func New(parent context.Context, view View) *Context {
	if v, ok := view.(*leaderelection.TimeView); ok {
		parent = leaderelection.WithView(parent, v)
	}
	return &Context{Context: parent, view: view}
}

// Stop ends the Context.
func (c *Context) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if c.cancel != nil {
		c.cancel(nil)
	}
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} { return c.begin().Done() }

// Err implements context.Context.
func (c *Context) Err() error {
	if b := c.begun.Load(); b != nil {
		return b.Err()
	}
	if c.Context.Err() == nil && c.view.ValueInFuture() {
		return nil
	}
	return c.begin().Err() // so that what was said once is said again
}

// Value implements context.Context. context.Cause finds the cause by it.
func (c *Context) Value(key any) any {
	if b := c.begun.Load(); b != nil {
		return b.Value(key)
	}
	return c.Context.Value(key)
}

// begin makes the ctx that ends with both, if there is none yet.
func (c *Context) begin() *begun {
	if b := c.begun.Load(); b != nil {
		return b
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.begun.Load(); b != nil {
		return b
	}
	ctx, cancel := context.WithCancelCause(c.Context)
	b := &begun{ctx}
	c.cancel = cancel
	c.begun.Store(b)
	switch {
	case c.stopped:
		cancel(nil)
	case !c.view.ValueInFuture():
		cancel(leaderelection.ErrNotLeading)
	default:
		go c.follow(ctx)
	}
	return b
}

// follow ends ctx with the view.
func (c *Context) follow(ctx context.Context) {
	clock := c.view.Clock()
	for c.view.ValueInFuture() {
		left := clock.Until(c.view.Get())
		if !clock.SleepFor(ctx, min(max(left, time.Millisecond), CheckEvery)) {
			return
		}
	}
	c.cancel(leaderelection.ErrNotLeading)
}
