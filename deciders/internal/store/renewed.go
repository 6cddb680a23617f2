package store

import (
	"context"
	"sync"
)

// Renewed is something that a client makes from files once: credentials, or the client itself.
// After Distrust it is made again from the files. Its methods may be called by several goroutines
// at once.
type Renewed[T any] struct {
	again func(context.Context) (T, error)

	mu         sync.Mutex
	now        T
	distrusted bool
}

// NewRenewed returns one that was made just now, and the function that makes it again.
func NewRenewed[T any](now T, again func(context.Context) (T, error)) *Renewed[T] {
	return &Renewed[T]{again: again, now: now}
}

// Get returns what was made last. If the files cannot be read it stays the same: somebody may be
// about to write them.
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

// Distrust makes the next Get read the files. Call it for each error that other files may cure.
func (r *Renewed[T]) Distrust() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.distrusted = true
}
