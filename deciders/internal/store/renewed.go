package store

import (
	"context"
	"sync"
)

// Renewed is what a client got from files that it reads once: credentials, or the client itself. It is
// made again, of what the files say then, after it was distrusted. Its methods may be called by several
// goroutines at once.
type Renewed[T any] struct {
	again func(context.Context) (T, error)

	mu         sync.Mutex
	now        T
	distrusted bool
}

// NewRenewed returns one that was made just now, and what makes it again.
func NewRenewed[T any](now T, again func(context.Context) (T, error)) *Renewed[T] {
	return &Renewed[T]{again: again, now: now}
}

// Get returns what was made last. If files cannot be read it stays as it was: somebody may be about to
// write them.
func (r *Renewed[T]) Get(ctx context.Context) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.distrusted {
		if now, err := r.again(ctx); err == nil {
			r.now, r.distrusted = now, false
		}
	}
	return r.now
}

// Distrust has the next Get read the files. Call it for each error that other files may cure.
func (r *Renewed[T]) Distrust() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.distrusted = true
}
