// Package outbox writes to what may hang: a pipe that nobody reads, a terminal that is stopped, a
// frozen file system, a socket whose queue is full. A loop that tends a lease waits for none of
// them: it hands each write to a Box, and goes on.
package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

// mostLines is how many lines of a log wait for somebody to read it.
const mostLines = 1000

// Log is what a log is written to: it takes each line at once, and writes it to Out when Out takes it.
// While too many lines wait, or Out refuses them, lines are lost; they are counted, and Lost's line
// stands in their place. Its methods may be called by several goroutines at once.
type Log struct {
	Out io.Writer
	// Lost is a line that says how many lines are missing.
	Lost func(lines int) []byte

	box  Box
	mu   sync.Mutex
	lost int // lines after the last one that waits, or that was written
}

// Write implements io.Writer. It never waits, and never fails.
func (l *Log) Write(line []byte) (int, error) {
	text := bytes.Clone(line)
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.lost
	l.lost = 0
	if !l.box.Put(mostLines, func() { l.write(lost, text) }) {
		l.lost = lost + 1
	}
	return len(line), nil
}

// write writes a line, and before it how many are missing there.
func (l *Log) write(lost int, line []byte) {
	var err error
	if lost > 0 {
		if _, err = l.Out.Write(l.Lost(lost)); err == nil {
			lost = 0
		}
	}
	if err == nil && len(line) > 0 {
		_, err = l.Out.Write(line)
	}
	if err != nil && len(line) > 0 {
		lost++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost += lost; l.lost > 0 && err == nil { // it flows again: that is not left to the next line
		lost := l.lost
		if l.box.Put(1, func() { l.write(lost, nil) }) {
			l.lost = 0
		}
	}
}

// Flush waits until all is written, but no longer than within.
func (l *Log) Flush(within time.Duration) { l.box.Flush(within) }
