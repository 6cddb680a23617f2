package sidecar

import (
	"container/list"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// How long a connection may do nothing.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 30 * time.Second
	writeTimeout  = 10 * time.Second // of one piece of an answer
)

// Server serves handler to at most most connections at once, so that whoever opens
// connections takes none of the file descriptors that the lease needs. It serves what
// Limit returns.
func Server(handler http.Handler, l *Limited, log *log.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		WriteTimeout:      maxWait + writeTimeout, // events move it on
		MaxHeaderBytes:    64 << 10,
		ConnState:         l.state,
		ErrorLog:          log,
	}
}

// Limited is a listener with a limit of connections. One too many takes the place of
// the one that has been idle for longest, so that a probe always finds one; if none
// is idle, it is closed.
type Limited struct {
	net.Listener
	most int

	mu   sync.Mutex
	open int
	idle *list.List // of *limitedConn; the one that became so first is at the front
}

// Limit returns l with a limit.
func Limit(l net.Listener, most int) *Limited {
	return &Limited{Listener: l, most: most, idle: list.New()}
}

type limitedConn struct {
	net.Conn
	l      *Limited
	idle   *list.Element // nil: a request is being answered
	closed bool
}

// Accept implements net.Listener.
func (l *Limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if limited := l.admit(c); limited != nil {
			return limited, nil
		}
		_ = c.Close()
	}
}

// admit counts c, in the place of an idle one if need be. It returns nil if there is
// none.
func (l *Limited) admit(c net.Conn) *limitedConn {
	l.mu.Lock()
	var victim *limitedConn
	if l.open >= l.most {
		oldest := l.idle.Front()
		if oldest == nil {
			l.mu.Unlock()
			return nil
		}
		victim = oldest.Value.(*limitedConn)
		l.forget(victim)
	}
	l.open++
	limited := &limitedConn{Conn: c, l: l}
	limited.idle = l.idle.PushBack(limited)
	l.mu.Unlock()
	if victim != nil {
		_ = victim.Conn.Close()
	}
	return limited
}

// forget counts c no longer. The caller holds mu.
func (l *Limited) forget(c *limitedConn) {
	if c.closed {
		return
	}
	c.closed = true
	l.open--
	l.busy(c)
}

// busy takes c from those that are idle. The caller holds mu.
func (l *Limited) busy(c *limitedConn) {
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.idle = nil
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.l.mu.Lock()
	c.l.forget(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// state is an http.Server's ConnState: whether a connection is idle.
func (l *Limited) state(conn net.Conn, s http.ConnState) {
	c, ours := conn.(*limitedConn)
	if !ours {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s == http.StateActive:
		l.busy(c)
	case s == http.StateIdle && !c.closed && c.idle == nil:
		c.idle = l.idle.PushBack(c)
	}
}
