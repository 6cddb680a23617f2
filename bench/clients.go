package main

import (
	"io"
	"sync"
)

// clients is what the candidates of a process have in common: one client of each kind, as
// a program with many elections has it.
type clients struct {
	mu   sync.Mutex
	made map[any]any // by kind
}

// kind is the key of a client's type.
type kind[C any] struct{}

// client returns a client that make makes, and what ends it: of the seat's own, or the one
// that all seats of the process share.
func client[C io.Closer](s seat, make func(seat) (C, error)) (C, func(), error) {
	if s.Clients == nil {
		c, err := make(s)
		return c, func() { _ = c.Close() }, err // its connections end with the process as well
	}
	s.Clients.mu.Lock()
	defer s.Clients.mu.Unlock()
	if c, has := s.Clients.made[kind[C]{}].(C); has {
		return c, func() {}, nil
	}
	c, err := make(s)
	if err == nil {
		s.Clients.made[kind[C]{}] = c
	}
	return c, func() {}, err
}
