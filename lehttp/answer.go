package lehttp

import (
	"bufio"
	"maps"
	"net"
	"net/http"
	"sync"

	"github.com/c8e606e4/leaderelection"
)

// answer is the ResponseWriter of a handler. What it writes is held back until
// it is finished, flushed or larger than a buffer: then the view is asked.
type answer struct {
	w      http.ResponseWriter
	view   *leaderelection.TimeView
	gate   *gate
	buf    *buffer // while state is held
	code   int16   // zero: not yet said
	state  state
	broken bool // a part has left, and no more will
}

type state uint8

const (
	held   state = iota // nothing has left
	passed              // something has
	lost                // the view has ended, and the client was told so, or nothing more
	taken               // hijacked
)

// buffer is what an answer is held back in: as much as net/http's own server
// holds back anyway.
type buffer struct {
	before http.Header // the header before the handler was called; nil: none
	n      int
	bytes  [2048]byte
	unused []answer
}

var bufferPool = sync.Pool{New: func() any { return new(buffer) }}

// newAnswer returns one with a buffer. Answers are made by the dozen and never
// used again: a handler may have kept one, and must not reach another client by
// it.
func newAnswer() *answer {
	b := bufferPool.Get().(*buffer)
	if len(b.unused) == 0 {
		b.unused = make([]answer, 16)
	}
	a := &b.unused[0]
	b.unused, b.n = b.unused[1:], 0
	a.buf = b
	return a
}

// Header is the header map of the wrapped ResponseWriter.
func (a *answer) Header() http.Header { return a.w.Header() }

// Unwrap is for http.ResponseController: deadlines and the like.
func (a *answer) Unwrap() http.ResponseWriter { return a.w }

// WriteHeader notes the status; it goes out with what follows.
func (a *answer) WriteHeader(code int) {
	if a.state != held || a.code != 0 {
		if a.state == passed {
			a.w.WriteHeader(code) // which will complain of it
		}
		return
	}
	if code >= 100 && code < 200 && code != http.StatusSwitchingProtocols {
		if a.view.ValueInFuture() {
			a.w.WriteHeader(code) // informational: another one follows
		}
		return
	}
	if code < 100 || code > 999 {
		a.w.WriteHeader(code) // which panics, as it should
		return
	}
	a.code = int16(code)
}

// Write holds p back, or passes it on while the view lasts.
func (a *answer) Write(p []byte) (int, error) {
	if a.state == held {
		if a.buf.n+len(p) <= len(a.buf.bytes) {
			a.buf.n += copy(a.buf.bytes[a.buf.n:], p)
			return len(p), nil
		}
		if err := a.commit(); err != nil {
			return 0, err
		}
		return a.w.Write(p)
	}
	if err := a.allowed(); err != nil {
		return 0, err
	}
	return a.w.Write(p)
}

// allowed says whether more of an answer may leave.
func (a *answer) allowed() error {
	switch {
	case a.state == taken:
		return http.ErrHijacked
	case a.state == lost:
		return ErrNotLeading
	case !a.view.ValueInFuture():
		a.state, a.broken = lost, true
		return ErrNotLeading
	}
	return nil
}

// commit lets what was held back go, if the view still lasts; else it answers
// in its place.
func (a *answer) commit() error {
	if !a.view.ValueInFuture() {
		a.state = lost
		h := a.w.Header()
		clear(h)
		maps.Copy(h, a.buf.before)
		a.free()
		h.Set(notLeading, lostLeadership)
		no := a.gate.refusal()
		no.why = "this process has ceased to lead while it worked on the request, which may have taken effect"
		no.answer(a.w)
		return ErrNotLeading
	}
	a.state = passed
	if a.code != 0 {
		a.w.WriteHeader(int(a.code))
	}
	var err error
	if a.buf.n > 0 {
		_, err = a.w.Write(a.buf.bytes[:a.buf.n])
	}
	a.free()
	return err
}

// free gives the buffer back.
func (a *answer) free() {
	a.buf.before = nil
	bufferPool.Put(a.buf)
	a.buf = nil
}

// finish lets the answer go when the handler has returned. It panics, as net/http
// wants it, to break off an answer of which a part has left.
func (a *answer) finish() {
	switch a.state {
	case held:
		_ = a.commit() // an error is the connection's, and net/http's own to handle
	case passed:
		if !a.view.ValueInFuture() {
			a.broken = true
		}
	}
	if a.broken {
		panic(http.ErrAbortHandler)
	}
}

// Flush sends what there is.
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError is Flush for http.ResponseController.
func (a *answer) FlushError() error {
	if a.state == held {
		if err := a.commit(); err != nil {
			return err
		}
	} else if err := a.allowed(); err != nil {
		return err
	}
	return http.NewResponseController(a.w).Flush()
}

// Hijack hands the connection over, as one that writes only while the view
// lasts.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if a.state == lost || !a.view.ValueInFuture() {
		return nil, nil, ErrNotLeading
	}
	conn, rw, err := http.NewResponseController(a.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if a.state == held {
		a.free()
	}
	a.state = taken
	gated := &gatedConn{Conn: conn, view: a.view}
	return gated, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(gated)), nil
}

// gatedConn is a hijacked connection.
type gatedConn struct {
	net.Conn
	view *leaderelection.TimeView
}

// Write closes the connection instead where the view has ended.
func (c *gatedConn) Write(p []byte) (int, error) {
	if !c.view.ValueInFuture() {
		_ = c.Close() // it is given up in any case
		return 0, ErrNotLeading
	}
	return c.Conn.Write(p)
}
