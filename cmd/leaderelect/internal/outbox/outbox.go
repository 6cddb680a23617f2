// Package outbox writes to what may hang: a pipe that nobody reads, a terminal that is stopped, a
// frozen file system, a socket whose queue is full. A loop that tends a lease waits for none of
// them: it hands each write to a Box, and goes on.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrHangs means that a write is not over, and its time is. It may happen later.
var ErrHangs = errors.New("it hangs")

// Box does one thing after another in a goroutine of its own, which is there while there is
// something to do. So at most one of them hangs at a time, and none overtakes another. Its methods
// may be called by several goroutines at once. The zero value is ready.
type Box struct {
	mu      sync.Mutex
	waiting []*func()
	idle    chan struct{} // closed when nothing is left to do; nil: nothing is
}

// Put has do called after what was put before, and does not wait for it. It reports false, and do is
// not called, if so many wait already.
func (b *Box) Put(most int, do func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= most {
		return false
	}
	b.put(&do)
	return true
}

// put begins the goroutine if there is none. The caller holds mu.
func (b *Box) put(do *func()) {
	b.waiting = append(b.waiting, do)
	if b.idle == nil {
		b.idle = make(chan struct{})
		go b.work()
	}
}

func (b *Box) work() {
	for {
		b.mu.Lock()
		if len(b.waiting) == 0 {
			close(b.idle)
			b.idle = nil
			b.mu.Unlock()
			return
		}
		do := b.waiting[0]
		b.waiting = slices.Delete(b.waiting, 0, 1)
		b.mu.Unlock()
		(*do)()
	}
}

// Do has do called as Put does, and returns its error. If ctx ends first it returns the cause: do is
// then not called any more, unless that has begun already.
func (b *Box) Do(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	call := func() { done <- do() }
	b.mu.Lock()
	b.put(&call)
	b.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		b.mu.Lock()
		defer b.mu.Unlock()
		b.waiting = slices.DeleteFunc(b.waiting, func(w *func()) bool { return w == &call })
		return context.Cause(ctx)
	}
}

// Within is Do with a limit of time. ErrHangs says that do was not over then.
func (b *Box) Within(ctx context.Context, limit time.Duration, do func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: not over after %v", ErrHangs, limit))
	defer cancel()
	return b.Do(ctx, do)
}

// Flush waits until nothing is left to do, but no longer than within, and reports whether it came to
// that.
func (b *Box) Flush(within time.Duration) bool {
	b.mu.Lock()
	idle := b.idle
	b.mu.Unlock()
	if idle == nil {
		return true
	}
	over := time.NewTimer(within)
	defer over.Stop()
	select {
	case <-idle:
		return true
	case <-over.C:
		return false
	}
}
