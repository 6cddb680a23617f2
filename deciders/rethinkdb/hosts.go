package rethinkdb

import (
	"context"
	"errors"
	"fmt"
	"sync"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// sessions is where a Decider's queries run.
type sessions interface {
	// use returns a session, for as long as ctx lasts.
	use(ctx context.Context) (r.QueryExecutor, error)
	// ended is told how a query on it has ended.
	ended(on r.QueryExecutor, err error)
}

// callers is the session that NewDecider was given: what becomes of it is the caller's
// affair.
type callers struct{ r.QueryExecutor }

func (c callers) use(context.Context) (r.QueryExecutor, error) { return c.QueryExecutor, nil }
func (c callers) ended(r.QueryExecutor, error)                 {}

// hosts has a session for each server that a URL names, made when it is needed. A session
// for all of them would never use one that was down at first, and would read certificates
// once. Queries go to one server until it fails.
type hosts struct {
	opts  r.ConnectOpts // without addresses
	addrs []string
	tls   *store.TLSFiles // nil: no TLS

	mu       sync.Mutex
	at       int          // the server to use
	sessions []*r.Session // by server; nil: none yet
	closed   bool
	turn     chan struct{} // one connects at a time
}

func newHosts(p *parsed) *hosts {
	return &hosts{opts: p.connect, addrs: p.hosts, tls: p.tls, sessions: make([]*r.Session, len(p.hosts)), turn: make(chan struct{}, 1)}
}

var errClosed = fmt.Errorf("the Decider is closed: %w", leaderelection.ErrPermanent)

// use implements sessions. It tries one server after the other.
func (h *hosts) use(ctx context.Context) (r.QueryExecutor, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var failures []error
	for range h.addrs {
		h.mu.Lock()
		at, s, closed := h.at, h.sessions[h.at], h.closed
		h.mu.Unlock()
		if closed {
			return nil, errClosed
		} else if s != nil {
			return s, nil
		}
		s, err := h.connect(ctx, h.addrs[at])
		h.mu.Lock()
		switch {
		case err != nil:
			h.at = (at + 1) % len(h.addrs)
		case h.closed:
			err = errors.Join(errClosed, s.Close())
		default:
			h.sessions[at] = s
		}
		h.mu.Unlock()
		if err == nil {
			return s, nil
		}
		failures = append(failures, fmt.Errorf("connecting to %s: %w", h.addrs[at], err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failures...)
}

// connect connects to one server, for no longer than ctx or the timeout last: the driver
// knows no ctx here.
func (h *hosts) connect(ctx context.Context, addr string) (*r.Session, error) {
	opts := h.opts
	opts.Addresses = []string{addr}
	if h.tls != nil {
		cfg, err := h.tls.Load()
		if err != nil {
			return nil, err
		}
		opts.TLSConfig = cfg
	}
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	type result struct {
		session *r.Session
		err     error
	}
	done := make(chan result)
	go func() {
		s, err := r.Connect(opts)
		select {
		case done <- result{s, err}:
		case <-ctx.Done():
			if err == nil {
				_ = s.Close()
			}
		}
	}()
	select {
	case got := <-done:
		return got.session, got.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ended implements sessions. After an error that may be the server's own the next one is
// used; a session whose connection has failed is made anew when it is needed again.
func (h *hosts) ended(on r.QueryExecutor, err error) {
	next, broken := outcome(err)
	if !next {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range h.sessions {
		if s == nil || r.QueryExecutor(s) != on {
			continue
		}
		if h.at == i {
			h.at = (i + 1) % len(h.addrs)
		}
		if broken {
			h.sessions[i] = nil
			go func() { _ = s.Close() }()
		}
	}
}

// outcome reports whether another server may do better than the one that gave this error,
// and whether it is its connection that has failed.
func outcome(err error) (next, broken bool) {
	var connection r.RQLConnectionError
	var failed r.RQLOpFailedError
	var unknown r.RQLOpIndeterminateError
	switch {
	case errors.As(err, &connection): // also if the server refuses what the files had at first
		return true, true
	case err == nil, errors.Is(err, r.ErrEmptyResult), errors.Is(err, context.Canceled), judge(err).Permanent:
		return false, false
	case errors.As(err, &failed), errors.As(err, &unknown):
		return true, false // it may be one that is cut off from the others
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, r.ErrQueryTimeout):
		return true, false
	}
	return true, true
}

// close closes all sessions.
func (h *hosts) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	var failures []error
	for i, s := range h.sessions {
		if s != nil {
			failures = append(failures, s.Close())
			h.sessions[i] = nil
		}
	}
	return errors.Join(failures...)
}
