package lehttp

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route/viewctx"
)

// answer is the ResponseWriter of a handler. It holds back what the handler writes until the
// handler has finished or flushed, or the buffer is full. Then it asks the view.
//
// An answer is made for one request, and never used again: a handler may have kept it, and must
// not reach another client by it. Its state is in its work, which is taken away from it in the
// end, for other requests.
type answer struct {
	work *work
	in   admission
}

// work is the state of an answer while its request is served.
type work struct {
	w          http.ResponseWriter
	leadership *leadership
	before     http.Header // the header before the handler was called; nil: none
	said       http.Header // the header as it was when the handler settled it; nil: not yet
	n          int         // the number of bytes held back
	code       int16       // zero: not yet known
	state      state
	broken     bool // a part has left, and no more will
	// bytes are held back. net/http's own server holds back as many anyway.
	bytes [2048]byte

	next    int         // the next free one of answers
	answers *[64]answer // new ones, made by the dozen
}

type state uint8

const (
	held   state = iota // nothing has left
	passed              // a part has left
	lost                // the view has ended, and the client was told so, or nothing more
	taken               // hijacked
)

var works = sync.Pool{New: func() any { return new(work) }}

// newAnswer returns an answer that writes to w, in the leadership r.
func newAnswer(w http.ResponseWriter, r *leadership) *answer {
	k := works.Get().(*work)
	if k.answers == nil || k.next == len(k.answers) {
		k.answers, k.next = new([len(k.answers)]answer), 0
	}
	a := &k.answers[k.next]
	k.next++
	a.work = k
	k.w, k.leadership = w, r
	k.n, k.code, k.state, k.broken = 0, 0, held, false
	return a
}

// over gives the work back.
func (a *answer) over() {
	k := a.work
	a.work = nil
	k.w, k.leadership = nil, nil
	k.before, k.said = nil, nil
	works.Put(k)
}

// errFinished is what a handler gets that writes after it has returned.
var errFinished = errors.New("leaderelection: the answer is finished: its handler has returned")

// Header is the header map of the wrapped ResponseWriter.
func (a *answer) Header() http.Header {
	k := a.work
	if k == nil {
		return http.Header{}
	}
	return k.w.Header()
}

// Unwrap is for http.ResponseController: deadlines and the like.
func (a *answer) Unwrap() http.ResponseWriter {
	k := a.work
	if k == nil {
		return nil
	}
	return k.w
}

// WriteHeader notes the status; it goes out with what follows.
func (a *answer) WriteHeader(code int) {
	if k := a.work; k != nil {
		k.writeHeader(code)
	}
}

// Write holds p back, or passes it on while the view lasts.
func (a *answer) Write(p []byte) (int, error) {
	k := a.work
	if k == nil {
		return 0, errFinished
	}
	return k.write(p)
}

// Flush sends what there is.
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError is Flush for http.ResponseController.
func (a *answer) FlushError() error {
	k := a.work
	if k == nil {
		return errFinished
	}
	if a.in.safe {
		a.in.stream.Store(true)
	}
	return k.flush()
}

// Hijack hands the connection over, as one that lasts only until leadership is given up.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	k := a.work
	if k == nil {
		return nil, nil, errFinished
	}
	return k.hijack(&a.in)
}

func (k *work) writeHeader(code int) {
	if k.state != held || k.code != 0 {
		if k.state == passed {
			k.w.WriteHeader(code) // which will complain of it
		}
		return
	}
	if code >= 100 && code < 200 && code != http.StatusSwitchingProtocols {
		if k.leadership.view.ValueInFuture() {
			k.w.WriteHeader(code) // informational: another one follows
		}
		return
	}
	if code < 100 || code > 999 {
		k.w.WriteHeader(code) // which panics, as it should
		return
	}
	k.code = int16(code)
	k.settle()
}

// empty is the header of an answer that has none. Nobody writes to it.
var empty = http.Header{}

// settle notes the current header. Later changes by the handler count only for trailers, as in
// net/http.
func (k *work) settle() {
	if k.said != nil {
		return
	}
	if h := k.w.Header(); len(h) == 0 {
		k.said = empty
	} else {
		k.said = h.Clone()
	}
}

// passHeader sends the status and the settled header. It removes the mark of a refusal that the
// handler has relayed from another service: the mark would say that nobody has worked on this
// request.
func (k *work) passHeader() {
	h := k.w.Header()
	if k.said == nil { // the handler has written nothing at all
		h.Del(notLeading)
		return
	}
	code := int(k.code)
	if code == 0 {
		code = http.StatusOK
	}
	if len(k.said[notLeading]) == 0 && maps.EqualFunc(h, k.said, slices.Equal) {
		k.w.WriteHeader(code)
		return
	}
	later := maps.Clone(h)
	clear(h)
	maps.Copy(h, k.said)
	h.Del(notLeading)
	k.w.WriteHeader(code)
	clear(h)
	maps.Copy(h, later)
	h.Del(notLeading)
}

func (k *work) write(p []byte) (int, error) {
	if k.state == held {
		k.settle()
		if k.n+len(p) <= len(k.bytes) {
			k.n += copy(k.bytes[k.n:], p)
			return len(p), nil
		}
		if err := k.commit(); err != nil {
			return 0, err
		}
		return k.w.Write(p)
	}
	if err := k.allowed(); err != nil {
		return 0, err
	}
	return k.w.Write(p)
}

// allowed reports whether more of an answer may leave.
func (k *work) allowed() error {
	switch {
	case k.state == taken:
		return http.ErrHijacked
	case k.state == lost:
		return leaderelection.ErrNotLeading
	case !k.leadership.view.ValueInFuture():
		k.state, k.broken = lost, true
		return leaderelection.ErrNotLeading
	}
	return nil
}

// commit sends what was held back, if the view still lasts. Otherwise it sends a refusal instead.
func (k *work) commit() error {
	if !k.leadership.view.ValueInFuture() {
		k.state = lost
		h := k.w.Header()
		closes := h.Get("Connection") == "close" // the request's body may be on it still
		clear(h)
		maps.Copy(h, k.before)
		if closes {
			h.Set("Connection", "close")
		}
		h.Set(notLeading, k.leadership.marks.lost)
		no := k.leadership.refusal()
		no.why = k.leadership.ceased
		no.answer(k.w)
		return leaderelection.ErrNotLeading
	}
	k.state = passed
	k.passHeader()
	var err error
	if k.n > 0 {
		_, err = k.w.Write(k.bytes[:k.n])
	}
	return err
}

// finish sends the answer when the handler has returned. If a part has left and no more may, it
// breaks off the answer by a panic, as net/http wants it.
func (a *answer) finish() {
	k := a.work
	switch k.state {
	case held:
		_ = k.commit() // an error is the connection's, and net/http's own to handle
	case passed:
		if !k.leadership.view.ValueInFuture() {
			k.broken = true
		}
	}
	broken := k.broken
	a.over()
	if broken {
		panic(http.ErrAbortHandler)
	}
}

func (k *work) flush() error {
	if k.state == held {
		if err := k.commit(); err != nil {
			return err
		}
	} else if err := k.allowed(); err != nil {
		return err
	}
	return http.NewResponseController(k.w).Flush()
}

func (k *work) hijack(in *admission) (net.Conn, *bufio.ReadWriter, error) {
	if k.state == lost || !k.leadership.view.ValueInFuture() {
		return nil, nil, leaderelection.ErrNotLeading
	}
	conn, rw, err := http.NewResponseController(k.w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	k.state = taken
	in.stream.Store(true)
	gated := newGatedConn(conn, in)
	return gated, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(gated)), nil
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
