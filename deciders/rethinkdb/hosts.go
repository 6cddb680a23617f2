package rethinkdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// hosts has a session for each server that a URL names, made when it is needed. Queries go to one
// server until it fails. (A single session for all servers would never use one that was down at
// first, and would read certificates once.)
type hosts struct {
	opts  r.ConnectOpts // without addresses
	addrs []string
	tls   *store.TLSFiles // nil: no TLS

	mu       sync.Mutex
	at       int          // the server to use
	sessions []*r.Session // by server; nil: none yet
	heard    []time.Time  // by server, when it last answered
	closed   bool
	turn     chan struct{} // one connects at a time
}

func newHosts(p *parsed) *hosts {
	h := &hosts{opts: p.connect, addrs: p.hosts, sessions: make([]*r.Session, len(p.hosts)), heard: make([]time.Time, len(p.hosts)), turn: make(chan struct{}, 1)}
	if p.secure {
		h.tls = &p.files
	}
	return h
}

var errClosed = fmt.Errorf("the Decider is closed: %w", leaderelection.ErrPermanent)

// Use returns a session. It tries one server after the other, as long as ctx lasts.
func (h *hosts) Use(ctx context.Context) (r.QueryExecutor, error) {
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
			h.sessions[at], h.heard[at] = s, time.Now()
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

// nowhere is an address that cannot be dialed. The driver cuts an address at its first colon, and so
// could not reach an IPv6 address. It takes a Host as it is, but only in a session that it has made:
// along with the error of the first attempt it returns one, which is then told its Host.
const nowhere = "["

// connect connects to one server, for no longer than ctx or the timeout last: the driver
// knows no ctx here.
func (h *hosts) connect(ctx context.Context, addr string) (*r.Session, error) {
	name, digits, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(digits)
	if err != nil {
		return nil, err
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	opts := h.opts
	opts.Addresses = []string{nowhere}
	if h.tls != nil {
		cfg, err := h.tls.Load()
		if err != nil {
			return nil, err
		}
		opts.TLSConfig = cfg
	}
	ctx, cancel := context.WithTimeout(ctx, h.opts.Timeout)
	defer cancel()
	c, err := within.Do(ctx, make(within.Calls, 1), func() (session, error) {
		s, _ := r.Connect(opts)
		s.SetHosts([]r.Host{r.NewHost(name, port)})
		return session{s}, s.Reconnect()
	})
	return c.Session, err
}

// session is one that within.Do closes if it comes too late.
type session struct{ *r.Session }

// Close implements io.Closer.
func (s session) Close() error { return s.Session.Close() }

// Ended is told how a query on a session has ended. After an error that may be the server's own the next one is
// used; a session whose connection has failed is made again when it is needed again.
func (h *hosts) Ended(on r.QueryExecutor, err error) {
	next, broken := outcome(err)
	unanswered := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, r.ErrQueryTimeout)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range h.sessions {
		if s == nil || r.QueryExecutor(s) != on {
			continue
		}
		if !unanswered {
			h.heard[i] = time.Now()
		}
		h.leave(i, next, broken)
	}
}

// leave leaves a server for the next one, and its session for another one.
func (h *hosts) leave(i int, next, broken bool) {
	if next && h.at == i {
		h.at = (i + 1) % len(h.addrs)
	}
	if s := h.sessions[i]; broken {
		h.sessions[i] = nil
		go func() { _ = s.Close() }()
	}
}

// Drop closes the sessions in which no query was answered since that time. All queries of a session
// use one connection, and the driver goes on with one that has died silently.
func (h *hosts) Drop(since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range h.sessions {
		if s != nil && h.heard[i].Before(since) {
			h.leave(i, true, true)
		}
	}
}

// outcome reports whether another server may do better than the one that gave this error,
// and whether it is its connection that has failed.
func outcome(err error) (next, broken bool) {
	switch {
	case is[r.RQLConnectionError](err): // even if the server refuses what the files had at first
		return true, true
	case err == nil, errors.Is(err, r.ErrEmptyResult), errors.Is(err, context.Canceled):
		return false, false
	}
	switch v := judge(err); {
	case v.Permanent || v.Denied: // as it would be on another server
		return false, false
	case is[r.RQLOpFailedError](err), is[r.RQLOpIndeterminateError](err):
		return true, false // it may be one that is cut off from the others
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, r.ErrQueryTimeout):
		return true, false
	}
	return true, true
}

// Close closes all sessions.
func (h *hosts) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	var failures []error
	for i, s := range h.sessions {
		if s == nil {
			continue
		}
		if err := s.Close(); err != nil {
			failures = append(failures, fmt.Errorf("leaderelection/rethinkdb: closing a session: %w", err))
		}
		h.sessions[i] = nil
	}
	return errors.Join(failures...)
}
