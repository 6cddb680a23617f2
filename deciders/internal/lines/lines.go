// Package lines closes connections that have died silently, for clients that would go on using
// them: clients that send all calls over one connection, or keep several.
package lines

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Lines are a client's connections. The zero value has none. Its methods may be called
// concurrently.
type Lines struct{ open sync.Map }

// Add adds a connection to the client's, until it is closed.
func (l *Lines) Add(c net.Conn) net.Conn {
	x := &line{Conn: c, of: l}
	x.heard.Store(elapsed(time.Now()))
	l.open.Store(x, nil)
	if _, raw := c.(syscall.Conn); raw {
		return checkable{x}
	}
	return x
}

// elapsed counts by the monotonic clock: the wall clock may be set.
func elapsed(at time.Time) int64 { return int64(at.Sub(epoch)) }

var epoch = time.Now()

// Drop closes the connections on which nothing has been heard since that time.
func (l *Lines) Drop(since time.Time) {
	for x := range l.open.Range {
		if c := x.(*line); c.heard.Load() < elapsed(since) {
			_ = c.Close()
		}
	}
}

// line is a connection that knows when something was last heard on it.
type line struct {
	net.Conn
	of    *Lines
	heard atomic.Int64 // see elapsed
}

// Read implements net.Conn.
func (c *line) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard.Store(elapsed(time.Now()))
	}
	return n, err
}

// checkable is a connection whose client can see before a call that it is closed, as go-redis does.
type checkable struct{ *line }

// SyscallConn implements syscall.Conn.
func (c checkable) SyscallConn() (syscall.RawConn, error) { return c.Conn.(syscall.Conn).SyscallConn() }

// Close implements net.Conn.
func (c *line) Close() error {
	c.of.open.Delete(c)
	return c.Conn.Close()
}
