// Package clients lets what one program opens at one server share a client: a group of
// shards has many records, and a server counts its connections.
package clients

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Set are the clients that are shared. Its methods may be called concurrently. The zero value
// is empty.
type Set struct {
	mu   sync.Mutex
	open map[string]*shared
}

type shared struct {
	users  int
	ready  chan struct{} // closed when what follows is known
	client any
	close  func() error
	err    error
}

type setKey struct{}

// In returns a ctx with which clients are shared.
func (s *Set) In(ctx context.Context) context.Context { return context.WithValue(ctx, setKey{}, s) }

// Shares are the shared clients that an opening has joined. The zero value has none.
type Shares struct {
	mu     sync.Mutex
	retire []func()
}

type sharesKey struct{}

// In returns a ctx whose openings are noted.
func (s *Shares) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, sharesKey{}, s)
}

// Retire keeps these clients from being joined by later openings. The next one makes a new client.
// Those that share the old one keep it.
func (s *Shares) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, retire := range s.retire {
		retire()
	}
}

func (s *Shares) note(retire func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retire = append(s.retire, retire)
}

// ErrEnded is wrapped by the error of [Open] if its ctx has ended.
var ErrEnded = errors.New("the opening was given up")

func ended(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrEnded, context.Cause(ctx)) }

// Open returns a client, and what closes it. If ctx is of a [Set], others that ask for the same
// key share it, and it is closed with the last of them. Open is called with a ctx that ends with
// ctx while it runs, and not after: a client may go on to use it.
func Open[C any](ctx context.Context, key string, open func(ctx context.Context) (C, func() error, error)) (client C, done func() error, err error) {
	s, _ := ctx.Value(setKey{}).(*Set)
	if s == nil {
		return open(ctx)
	}
	var none C
	for {
		c, first := s.join(key)
		if first {
			c.make(ctx, func(ctx context.Context) (any, func() error, error) { return open(ctx) })
		}
		select {
		case <-c.ready:
		case <-ctx.Done():
			go func() { <-c.ready; _ = s.leave(key, c) }()
			return none, nil, ended(ctx)
		}
		if c.err == nil {
			if noted, _ := ctx.Value(sharesKey{}).(*Shares); noted != nil {
				noted.note(func() { s.retire(key, c) })
			}
			return c.client.(C), sync.OnceValue(func() error { return s.leave(key, c) }), nil
		}
		_ = s.leave(key, c)
		if first || ctx.Err() != nil {
			return none, nil, c.err
		} // else it may have been the end of another's ctx
	}
}

// join makes one more user of a client, and says whether it is the one to make it.
func (s *Set) join(key string) (c *shared, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = s.open[key]; c == nil {
		if s.open == nil {
			s.open = map[string]*shared{}
		}
		c, first = &shared{ready: make(chan struct{})}, true
		s.open[key] = c
	}
	c.users++
	return c, first
}

// leave makes one less, and closes what nobody uses, or could not be made.
func (s *Set) leave(key string, c *shared) error {
	s.mu.Lock()
	c.users--
	last := c.users == 0
	if (last || c.err != nil) && s.open[key] == c {
		delete(s.open, key)
	}
	s.mu.Unlock()
	if last && c.err == nil && c.close != nil {
		return c.close()
	}
	return nil
}

// retire has the next opening make another.
func (s *Set) retire(key string, c *shared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[key] == c {
		delete(s.open, key)
	}
}

// make makes it.
func (c *shared) make(ctx context.Context, open func(context.Context) (any, func() error, error)) {
	c.err = ErrEnded // if open panics, or ends its goroutine
	defer close(c.ready)
	live, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	client, done, err := open(live)
	if !stop() && err == nil { // the ctx that it may go on to use has ended
		if done != nil {
			_ = done()
		}
		err = ended(ctx)
	}
	if c.client, c.close, c.err = client, done, err; err != nil {
		cancel(nil)
	}
}
