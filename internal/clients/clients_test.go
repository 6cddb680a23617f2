package clients_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/clients"
)

// server counts its clients.
type server struct {
	mu        sync.Mutex
	now, made int
}

func (s *server) client(context.Context) (*server, func() error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now++
	s.made++
	return s, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
		return nil
	}, nil
}

// All who ask for the same key share a client, until the last has left; a caller without a Set has
// a client of its own.
func TestShared(t *testing.T) {
	var set clients.Set
	s := &server{}
	ctx, cancel := context.WithCancel(set.In(t.Context()))
	var wg sync.WaitGroup
	done := make([]func() error, 20)
	for i := range done {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var err error
			if _, done[i], err = clients.Open(ctx, "a", s.client); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	if s.made != 1 {
		t.Errorf("%d clients of one key", s.made)
	}
	_, other, err := clients.Open(ctx, "b", s.client)
	if err != nil || s.made != 2 {
		t.Errorf("%v; %d clients of two keys", err, s.made)
	}
	_, own, err := clients.Open(t.Context(), "a", s.client)
	if err != nil || s.made != 3 {
		t.Errorf("%v; %d clients, one of them nobody's but one's own", err, s.made)
	}
	if err := own(); err != nil {
		t.Error(err)
	}
	for _, f := range append(done[1:], other) {
		if err := f(); err != nil {
			t.Error(err)
		}
		_ = f() // no more than once
	}
	if s.now != 1 {
		t.Errorf("%d clients while one uses one", s.now)
	}
	_ = done[0]()
	if s.now != 0 {
		t.Errorf("%d clients that nobody uses", s.now)
	}
	if _, again, err := clients.Open(ctx, "a", s.client); err != nil || s.made != 4 {
		t.Errorf("%v; %d clients", err, s.made)
	} else {
		_ = again()
	}
	cancel()
	if _, _, err := clients.Open(ctx, "a", s.client); !errors.Is(err, context.Canceled) || s.now != 0 {
		t.Errorf("after the end of its ctx: %v, %d clients", err, s.now)
	}
}

// If one caller could not open a client, another tries by itself: the first may have failed because
// of its ctx. And the ctx that a client was made with does not end while others use it.
func TestSharedFailure(t *testing.T) {
	var set clients.Set
	begun, failed := make(chan struct{}), errors.New("refused")
	first, cancel := context.WithCancel(set.In(t.Context()))
	ended := make(chan error)
	go func() {
		_, _, err := clients.Open(first, "a", func(ctx context.Context) (int, func() error, error) {
			close(begun)
			<-ctx.Done()
			return 0, nil, context.Cause(ctx)
		})
		ended <- err
	}()
	<-begun
	got := make(chan context.Context, 1)
	second, end := context.WithCancel(set.In(t.Context()))
	opened := make(chan error)
	go func() {
		_, _, err := clients.Open(second, "a", func(ctx context.Context) (int, func() error, error) {
			got <- ctx
			return 7, nil, nil
		})
		opened <- err
	}()
	impatient, give := context.WithCancel(set.In(t.Context()))
	give()
	if _, _, err := clients.Open(impatient, "a", func(context.Context) (int, func() error, error) { return 0, nil, failed }); !errors.Is(err, context.Canceled) {
		t.Errorf("one that waits no more: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
	end()
	if err := (<-got).Err(); err != nil {
		t.Errorf("the ctx of a client in use: %v", err)
	}
	if _, _, err := clients.Open(set.In(t.Context()), "b", func(context.Context) (int, func() error, error) { return 0, nil, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
}

// A client that was retired is not joined any more, but goes on for those that have it.
func TestRetire(t *testing.T) {
	var set clients.Set
	s := &server{}
	var shares clients.Shares
	_, first, err := clients.Open(shares.In(set.In(t.Context())), "a", s.client)
	if err != nil {
		t.Fatal(err)
	}
	_, second, err := clients.Open(set.In(t.Context()), "a", s.client)
	if err != nil || s.made != 1 {
		t.Errorf("%v; %d clients", err, s.made)
	}
	shares.Retire()
	_, third, err := clients.Open(set.In(t.Context()), "a", s.client)
	if err != nil || s.made != 2 {
		t.Errorf("%v; %d clients after one was retired", err, s.made)
	}
	shares.Retire() // which is not that of the third
	_, fourth, err := clients.Open(set.In(t.Context()), "a", s.client)
	if err != nil || s.made != 2 {
		t.Errorf("%v; %d clients after it was retired again", err, s.made)
	}
	for i, done := range []func() error{first, second, third, fourth} {
		if err := done(); err != nil {
			t.Error(err)
		}
		if want := []int{2, 1, 1, 0}[i]; s.now != want {
			t.Errorf("%d are open after %d have left, want %d", s.now, i+1, want)
		}
	}
}
