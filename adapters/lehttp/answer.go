package lehttp

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route/viewctx"
)

// answer is the ResponseWriter of a handler. It holds back what the handler writes until the
// handler has finished or flushed, or it is more than atMost. Then it asks the view.
type answer struct {
	w      http.ResponseWriter
	in     admission
	before http.Header // the header before the handler was called; nil: none
	said   http.Header // the header as it was when the handler settled it; nil: not yet
	kept   []byte      // held back
	code   int         // zero: not yet known
	state  state
}

// atMost so many bytes are held back. net/http's own server holds back as many anyway.
const atMost = 2048

type state uint8

const (
	held     state = iota // nothing has left
	passed                // a part has left
	refused               // the view has ended, and the client was told so
	cut                   // the view has ended after a part had left, and no more will
	taken                 // hijacked
	finished              // the handler has returned
)

// errFinished is what a handler gets that writes after it has returned.
var errFinished = errors.New("leaderelection: the answer is finished: its handler has returned")

// Header is the header map of the wrapped ResponseWriter.
func (a *answer) Header() http.Header { return a.w.Header() }

// Unwrap is for http.ResponseController: deadlines and the like.
func (a *answer) Unwrap() http.ResponseWriter { return a.w }

// may reports whether a part of the answer may leave now.
func (a *answer) may() bool { return a.in.l.view.ValueInFuture() }

// WriteHeader notes the status; it goes out with what follows.
func (a *answer) WriteHeader(code int) {
	switch {
	case a.state == passed:
		a.w.WriteHeader(code) // which will complain of it
	case a.state != held || a.code != 0:
	case code < 100 || code > 999:
		a.w.WriteHeader(code) // which panics, as it should
	case code < 200 && code != http.StatusSwitchingProtocols:
		if a.may() {
			a.w.WriteHeader(code) // informational: another one follows
		}
	default:
		a.code = code
		a.settle()
	}
}

// Write holds p back, or passes it on while the view lasts.
func (a *answer) Write(p []byte) (int, error) {
	if a.state == held {
		a.settle()
		if len(a.kept)+len(p) <= atMost {
			a.kept = append(a.kept, p...)
			return len(p), nil
		}
	}
	if err := a.begin(); err != nil {
		return 0, err
	}
	return a.w.Write(p)
}

// Flush sends what there is.
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError is Flush for http.ResponseController.
func (a *answer) FlushError() error {
	if a.in.safe {
		a.in.stream.Store(true)
	}
	if err := a.begin(); err != nil {
		return err
	}
	return http.NewResponseController(a.w).Flush()
}

// Hijack hands the connection over, as one that lasts only until leadership is given up.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	switch {
	case a.state == finished:
		return nil, nil, errFinished
	case a.state == refused, a.state == cut, !a.may():
		return nil, nil, leaderelection.ErrNotLeading
	}
	conn, rw, err := http.NewResponseController(a.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	a.state = taken
	a.in.stream.Store(true)
	gated := newGatedConn(conn, &a.in)
	return gated, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(gated)), nil
}

// settle notes the current header. Later changes by the handler count only for trailers, as in
// net/http.
func (a *answer) settle() {
	if a.said == nil {
		a.said = a.w.Header().Clone()
	}
}

// begin sends what is held back, and reports whether more of the answer may leave.
func (a *answer) begin() error {
	switch {
	case a.state == held:
		return a.commit()
	case a.state == taken:
		return http.ErrHijacked
	case a.state == finished:
		return errFinished
	case a.state == passed && a.may():
		return nil
	case a.state == passed:
		a.state = cut
	}
	return leaderelection.ErrNotLeading
}

// commit sends what was held back, if the view still lasts. Otherwise it sends a refusal instead.
func (a *answer) commit() error {
	if !a.may() {
		a.state = refused
		h := a.w.Header()
		closes := h.Get("Connection") == "close" // the request's body may be on it still
		replace(h, a.before)
		if closes {
			h.Set("Connection", "close")
		}
		h.Set(notLeading, a.in.l.marks.lost)
		no := a.in.l.refusal()
		no.why = a.in.l.ceased
		no.answer(a.w)
		return leaderelection.ErrNotLeading
	}
	a.state = passed
	a.passHeader()
	var err error
	if len(a.kept) > 0 {
		_, err = a.w.Write(a.kept)
	}
	return err
}

// passHeader sends the status and the settled header, if the handler has written anything. It removes
// the mark of a refusal that the handler has relayed from another service: the mark would say that
// nobody has worked on this request.
func (a *answer) passHeader() {
	h := a.w.Header()
	if a.said != nil {
		later := maps.Clone(h)
		replace(h, a.said)
		h.Del(notLeading)
		a.w.WriteHeader(cmp.Or(a.code, http.StatusOK))
		replace(h, later)
	}
	h.Del(notLeading)
}

func replace(h, by http.Header) {
	clear(h)
	maps.Copy(h, by)
}

// finish sends the answer when the handler has returned. If a part has left and no more may, it
// breaks off the answer by a panic, as net/http wants it.
func (a *answer) finish() {
	if a.state == held || a.state == passed {
		_ = a.begin() // an error is the connection's, and net/http's own to handle
	}
	broken := a.state == cut
	a.state = finished
	if broken {
		panic(http.ErrAbortHandler)
	}
}

// gatedConn is a hijacked connection. It is closed when its leadership is being given up or is over,
// even if nothing is written to it: otherwise its client would wait at a process that does not lead.
type gatedConn struct {
	net.Conn
	view viewctx.View
	ctx  *viewctx.Context
}

func newGatedConn(conn net.Conn, view viewctx.View) *gatedConn {
	c := &gatedConn{Conn: conn, view: view, ctx: viewctx.New(context.Background(), view)}
	context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	return c
}

// Close closes the connection, and ends the watch over its view.
func (c *gatedConn) Close() error {
	err := c.Conn.Close()
	c.ctx.Stop()
	return err
}

// Write writes to the connection or, if its time is over, closes it.
func (c *gatedConn) Write(p []byte) (int, error) {
	if !c.view.ValueInFuture() {
		_ = c.Close() // it is given up in any case
		return 0, leaderelection.ErrNotLeading
	}
	return c.Conn.Write(p)
}
