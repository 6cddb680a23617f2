// Package httpfault joins the real client of a store to a handler in the same
// process, without sockets, and lets go wrong what goes wrong with HTTP: requests
// and answers that are lost, late, refused by something on the way, slow, cut
// short or garbled. It is for tests. It waits by timers and channels only, so it
// belongs inside testing/synctest bubbles.
package httpfault

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// Fault is what happens to one request. The zero value is: nothing.
type Fault struct {
	// Request and Answer are how long each takes on its way.
	Request, Answer time.Duration
	// LoseRequest: it never arrives. LoseAnswer: it is carried out, and its
	// sender does not learn that. The connection is reset then, or, where
	// Silent, nothing is heard any more until the sender gives up.
	LoseRequest, LoseAnswer, Silent bool
	// Status is answered by something on the way, which the request does not
	// get past, with Body and Header. 0: nothing does.
	Status int
	Body   string
	Header http.Header
	// SlowBody is how long the answer's body takes, in pieces.
	SlowBody time.Duration
	// Truncate ends the connection in the middle of the answer's body.
	Truncate bool
	// Garble puts other bytes in place of the answer's body.
	Garble bool
}

// Transport is a http.RoundTripper that reaches Handler.
type Transport struct {
	Handler http.Handler
	// Fault says what happens to a request; nil: nothing. It is called by
	// several goroutines at once.
	Fault func(*http.Request) Fault

	sent atomic.Int64
}

// Sent is how many requests there have been.
func (t *Transport) Sent() int { return int(t.sent.Load()) }

// errReset is a connection that broke.
var errReset = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// RoundTrip implements http.RoundTripper. A request that is under way goes on
// when its sender gives up.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.sent.Add(1)
	ctx := r.Context()
	sent, err := sent(r)
	if err != nil {
		return nil, err
	}
	var f Fault
	if t.Fault != nil {
		f = t.Fault(r)
	}
	on := r.Clone(context.WithoutCancel(ctx))
	on.Body = io.NopCloser(bytes.NewReader(sent))
	on.ContentLength = int64(len(sent))
	on.Header.Set("Content-Length", strconv.Itoa(len(sent))) // as it arrives on a wire
	on.RequestURI = on.URL.RequestURI()
	answers := make(chan *http.Response, 1) // nil: the connection broke
	go func() {
		if a, silent := t.travel(on, f); !silent {
			answers <- a
		}
	}()
	select {
	case a := <-answers:
		if a == nil {
			return nil, errReset
		}
		a.Request = r
		a.Body = newBody(ctx, a, f)
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// sent returns the body of a request whose sender has not given up.
func sent(r *http.Request) (body []byte, err error) {
	if r.Body != nil {
		defer r.Body.Close()
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	return body, r.Context().Err()
}

// travel is the way of a request and of its answer.
func (t *Transport) travel(r *http.Request, f Fault) (answer *http.Response, silent bool) {
	time.Sleep(f.Request)
	if f.LoseRequest {
		return nil, f.Silent
	}
	w := httptest.NewRecorder()
	if f.Status != 0 {
		for name, values := range f.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(f.Status)
		_, _ = w.WriteString(f.Body)
	} else {
		t.Handler.ServeHTTP(w, r)
	}
	if w.Header().Get("Date") == "" {
		w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	if w.Header().Get("Content-Length") == "" {
		w.Header().Set("Content-Length", strconv.Itoa(w.Body.Len()))
	}
	time.Sleep(f.Answer)
	if f.LoseAnswer {
		return nil, f.Silent
	}
	return w.Result(), false
}

// body is an answer's body as it arrives.
type body struct {
	ctx  context.Context
	data []byte
	slow time.Duration // before each piece
	most int           // bytes of a piece
	end  error
}

func newBody(ctx context.Context, a *http.Response, f Fault) io.ReadCloser {
	data, _ := io.ReadAll(a.Body) // which is in memory
	b := &body{ctx: ctx, data: data, most: len(data) + 1, end: io.EOF}
	if f.SlowBody > 0 {
		const pieces = 4
		b.slow, b.most = f.SlowBody/pieces, len(data)/pieces+1
	}
	if f.Garble {
		for i := range b.data {
			b.data[i] ^= 0x55
		}
	}
	if f.Truncate {
		b.data, b.end = b.data[:len(b.data)/2], io.ErrUnexpectedEOF
	}
	return b
}

// Read fails when the ctx of the request ends, as that of a socket does.
func (b *body) Read(p []byte) (int, error) {
	if b.slow > 0 {
		piece := time.NewTimer(b.slow)
		defer piece.Stop()
		select {
		case <-piece.C:
		case <-b.ctx.Done():
		}
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if len(b.data) == 0 {
		return 0, b.end
	}
	n := copy(p, b.data[:min(len(b.data), b.most)])
	b.data = b.data[n:]
	return n, nil
}

// Close does nothing: there is no connection.
func (b *body) Close() error { return nil }

// OfOthers are answers in which something on the way speaks of itself, with these statuses,
// too.
func OfOthers(statuses ...int) (all []Fault) {
	for _, status := range append(statuses, 301, 308, 400, 401, 403, 404, 405, 410, 500, 501, 502) {
		for _, body := range []string{"", "<html>no", "<html><head><title>No</title></head><body>no</body></html>", `{"message":"Forbidden"}`} {
			all = append(all, Fault{Status: status, Body: body})
		}
	}
	return all
}

// SpoiltAnswers fails the test where an answer that was spoilt on its way is not tried
// again, but taken for a record that is not ours, or for success.
func SpoiltAnswers(t *testing.T, server http.Handler, decider func(*http.Client) leaderelection.RaceDecider) {
	t.Helper()
	var f Fault
	d := decider(&http.Client{Transport: &Transport{Handler: server, Fault: func(*http.Request) Fault { return f }}})
	feedtest.Write(t, d, 1, nil)
	portal := Fault{Status: http.StatusOK, Body: "<html>log in to the network"}
	for _, f = range []Fault{{Garble: true}, {Truncate: true}, portal} {
		_, err := d.ReadCurrent(t.Context())
		feedtest.Passing(t, err)
	}
	_, err := d.WriteEntry(t.Context(), feedtest.State(2, nil))
	feedtest.Passing(t, err)
}
