package lehttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/internal/route"
)

// sender is the Proxy as the RoundTripper of its ReverseProxy. It finds the leader, and finds it
// again if leadership changes during a request.
type sender Proxy

// fate is the result of one attempt.
type fate int

const (
	answered  fate = iota // by the leader
	untouched             // nobody has worked on it: no connection, or refused by RequireLeader
	uncertain             // it may have been worked on: the connection broke, or leadership did
)

// The pauses of one request between two attempts at a leader that does not know yet that it
// leads. For how often all requests together dial a leader, see way.
const (
	firstPause = 2 * time.Millisecond
	longPause  = 100 * time.Millisecond
)

// RoundTrip sends out to the leader. Out is the ReverseProxy's own copy of the
// client's request, so it may be changed.
func (t *sender) RoundTrip(out *http.Request) (*http.Response, error) {
	body, no := t.keep(out)
	if no != nil {
		return nil, no
	}
	var (
		home  = homeOf(out, t.o.LeaderID, t.o.Election)
		wait  patience
		pause = firstPause
		sent  = false // an attempt has been uncertain
	)
	for {
		s := t.router.table.Load()
		if body.replayable() && home.open() {
			return nil, &comeHome{home, body}
		}
		res, what, err := t.try(out, body, s)
		if what == answered {
			return res, nil
		}
		if fault := body.failure(); fault != nil {
			discard(res)
			return nil, bodyRefusal(fault)
		}
		if what == uncertain && (sent || !idempotent(out)) || !body.replayable() || !t.worthwhile(out, body, err) {
			return t.giveUp(res, s, err)
		}
		if what == uncertain {
			sent = true
			if !wait.forLeadership(out.Context(), t.o.Wait, t.router, s) {
				return t.giveUp(res, s, err)
			}
		} else if !wait.forChange(out.Context(), t.o.Wait, s, pause, home != nil) {
			return t.giveUp(res, s, err)
		}
		discard(res)
		pause = min(2*pause, longPause)
	}
}

// try makes one attempt, if there is a leader to go to.
func (t *sender) try(out *http.Request, body *kept, s *route.State) (*http.Response, fate, error) {
	if no := unled(s, t.o.LeaderID); no != nil {
		return nil, untouched, no
	}
	addresses, trip, allowed, err := t.way.begin(s, t)
	if len(addresses) > 0 {
		if err != nil {
			complain(t.o.Logger, s, err.Error())
		}
		return t.attempt(out, body, s, addresses, trip)
	}
	no := t.unreachable(s, err)
	if !allowed {
		complain(t.o.Logger, s, err.Error())
		no.status, no.final = http.StatusServiceUnavailable, true
	}
	return nil, untouched, no
}

// worthwhile reports whether a request may wait, and whether waiting can help. It can help since
// somebody may lead at any moment. A request that another Proxy has sent does not wait here: it
// waits at that Proxy, which knows whether the client is there. A request whose client may have
// gone without a sign does not wait either.
func (t *sender) worthwhile(out *http.Request, body *kept, err error) bool {
	var no *refusal
	return t.o.Wait >= 0 && body.present && out.Header.Get(sentBy) != t.marks.sent && !(errors.As(err, &no) && no.final)
}

// giveUp returns the last result. If that is a refusal by RequireLeader, the proxy answers by a
// refusal of its own: there is no leader for this request.
func (t *sender) giveUp(res *http.Response, s *route.State, err error) (*http.Response, error) {
	if res == nil {
		return nil, err
	}
	if res.Header.Get(notLeading) == t.marks.lost {
		return res, nil
	}
	discard(res)
	return nil, &refusal{
		status: http.StatusServiceUnavailable, retry: s.UntilNext(), why: "the process that led last does not lead any more",
		detail: fmt.Sprintf("%q, which led last, refuses requests", s.Entry.LeaderID), untouched: true,
	}
}

// unreachable returns the refusal of a request that has not reached the leader of s.
func (t *sender) unreachable(s *route.State, err error) *refusal {
	return &refusal{
		status: http.StatusBadGateway, retry: s.UntilNext(), why: "the leader cannot be reached",
		detail: fmt.Sprintf("leader %q with token %d cannot be reached: %v", s.Entry.LeaderID, s.Entry.ElectionNumber, err), untouched: true,
	}
}

// attempt sends out to the leader of s. If an address takes no connection, or the process behind
// it refuses, it tries the next address: the process may be another, if the address is only valid
// on the leader's own machine.
func (t *sender) attempt(out *http.Request, body *kept, s *route.State, addresses []string, trip http.RoundTripper) (*http.Response, fate, error) {
	var refused *http.Response
	var last error
	connected := false
	for _, address := range addresses {
		res, err := t.send(body.next(out), s, address, trip)
		if err == nil {
			connected = true
			what := t.fateOf(res, s)
			if what != untouched || !body.replayable() {
				discard(refused)
				t.way.reached(s, address, what == answered)
				return res, what, nil
			}
			discard(refused)
			refused = res
			continue
		}
		if out.Context().Err() != nil || !unconnected(err) || !body.replayable() {
			discard(refused)
			return nil, uncertain, err
		}
		last = err
		if !body.timely() {
			break
		}
	}
	if connected {
		t.way.reached(s, "", false)
		return refused, untouched, nil
	}
	t.way.failed(s, last)
	return nil, untouched, t.unreachable(s, last)
}

// send makes one request. If this leader is silent and the next leader is known, it gives up the
// answer, or the rest of it: this leader is hung or cut off.
func (t *sender) send(out *http.Request, s *route.State, address string, trip http.RoundTripper) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(out.Context())
	out = out.WithContext(ctx)
	u := *out.URL
	u.Scheme, u.Host = t.o.Scheme, address
	out.URL = &u
	out.Header.Set(sentBy, t.marks.sent) // out is a copy: see kept.next
	answers := s.Overdue(grace, func() { cancel(errDeposed) })
	res, err := trip.RoundTrip(out)
	answers()
	if err != nil {
		if context.Cause(ctx) == errDeposed {
			err = errDeposed
		}
		cancel(nil)
		return nil, err
	}
	body := leaderBody{res.Body, s, cancel}
	if conn, ok := res.Body.(io.ReadWriteCloser); ok { // after 101
		res.Body = &leaderConn{body, conn}
	} else {
		res.Body = &body
	}
	return res, nil
}

// grace is how long a leader may be silent after the next leader is known: bytes that it has sent
// before may still be on their way.
const grace = time.Second

var errDeposed = errors.New("leaderelection: the process that was asked does not lead any more, and has not answered")

// leaderBody is the body of a leader's answer.
type leaderBody struct {
	io.ReadCloser
	s      *route.State
	cancel context.CancelCauseFunc // of the request
}

func (b *leaderBody) Read(p []byte) (int, error) {
	came := b.s.Overdue(grace, func() { b.cancel(errDeposed) })
	defer came()
	return b.ReadCloser.Read(p)
}

func (b *leaderBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// leaderConn is the connection to a leader that has switched protocols. The end of the request's
// ctx does not end it any more.
type leaderConn struct {
	leaderBody
	io.Writer
}

func (c *leaderConn) Read(p []byte) (int, error) {
	came := c.s.Overdue(grace, func() { _ = c.Close() })
	defer came()
	return c.ReadCloser.Read(p)
}

// fateOf reads the mark of RequireLeader in an answer. If the mark is another election's, the
// leader has relayed it, and so has worked on the request.
func (t *sender) fateOf(res *http.Response, s *route.State) fate {
	mark := res.Header.Get(notLeading)
	switch {
	case mark == "":
		return answered
	case res.StatusCode == http.StatusServiceUnavailable && mark == t.marks.refused:
		return untouched
	case res.StatusCode == http.StatusServiceUnavailable && mark == t.marks.lost:
		return uncertain
	}
	complain(t.o.Logger, s, fmt.Sprintf("an answer has the mark %q of another election's RequireLeader: where it is this one's, set Election alike in RequireOptions and ProxyOptions", mark))
	res.Header.Del(notLeading)
	return answered
}

// unconnected reports whether err shows that no connection was made.
func unconnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// idempotent reports whether a request may be carried out twice (RFC 9110, 9.2.2).
// net/http's Transport knows the same two headers.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return len(r.Header["Idempotency-Key"]) > 0 || len(r.Header["X-Idempotency-Key"]) > 0
}

// discard frees an answer that is not passed on. If the answer is short, its connection can be
// used again.
func discard(res *http.Response) {
	if res == nil {
		return
	}
	_, _ = io.CopyN(io.Discard, res.Body, 4<<10)
	_ = res.Body.Close()
}

// kept is a request's body, and whether it can be sent again.
type kept struct {
	bytes []byte // all of it, if whole
	whole bool
	from  io.Reader // the client's body, streamed; if not whole

	present bool      // the request's ctx ends when the client goes away
	came    time.Time // when the request came

	mu    sync.Mutex
	read  bool    // the beginning of from is gone
	fault error   // the error of reading from, if it was not io.EOF
	last  *stream // the body of the latest attempt
}

// keep prepares the body of out so that it can be sent more than once, if possible.
func (t *sender) keep(out *http.Request) (*kept, *refusal) {
	k := &kept{came: time.Now()}
	defer func() { k.present = k.whole || present(out) }() // net/http looks at the connection when the body has been read
	switch n := out.ContentLength; {
	case out.Body == nil || out.Body == http.NoBody:
		k.whole = true
	case n > 0 && n <= t.o.KeepBody && out.Header.Get("Expect") == "":
		k.bytes, k.whole = make([]byte, n), true
		if _, err := io.ReadFull(out.Body, k.bytes); err != nil {
			return nil, bodyRefusal(err)
		}
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(k.bytes)), nil }
	default:
		k.from = out.Body
	}
	return k, nil
}

// present reports whether a request's ctx ends when the client goes away, even while its body has not
// been read.
func present(r *http.Request) bool { return r.ProtoMajor > 1 }

// bodyRefusal answers a client whose body cannot be read.
func bodyRefusal(err error) *refusal {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &refusal{status: http.StatusRequestEntityTooLarge, why: "the request's body is too large", detail: err.Error()}
	}
	return &refusal{status: http.StatusBadRequest, why: "the request's body broke off", detail: err.Error()}
}

// replayable reports whether the body can be sent from its beginning. If so, the attempt before
// can no longer read from it.
func (k *kept) replayable() bool {
	if k.whole {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.read {
		return false
	}
	if k.last != nil {
		k.last.over = true
	}
	return true
}

// timely reports whether the request may still be begun. If the client may have gone without a
// sign, the request must be new.
func (k *kept) timely() bool { return k.present || time.Since(k.came) < grace }

// failure returns the error of reading the client's body, or nil.
func (k *kept) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fault
}

// next returns a copy of out for the next attempt. The attempt before may still be using its copy.
func (k *kept) next(out *http.Request) *http.Request {
	next := out.Clone(out.Context())
	switch {
	case next.GetBody != nil:
		next.Body, _ = next.GetBody()
	case k.from != nil:
		s := &stream{k: k}
		k.mu.Lock()
		k.last = s
		k.mu.Unlock()
		next.Body = s
	}
	return next
}

// home returns the body for a handler of this process.
func (k *kept) home() io.ReadCloser {
	switch {
	case k.from != nil:
		return io.NopCloser(k.from)
	case len(k.bytes) > 0:
		return io.NopCloser(bytes.NewReader(k.bytes))
	}
	return http.NoBody
}

// stream is a streamed body as one attempt sees it.
type stream struct {
	k    *kept
	over bool // another attempt has begun; under k.mu
}

var errOver = errors.New("leaderelection: the request is being sent elsewhere")

func (s *stream) Read(p []byte) (int, error) {
	k := s.k
	k.mu.Lock()
	if s.over {
		k.mu.Unlock()
		return 0, errOver
	}
	k.read = true
	k.mu.Unlock()
	n, err := k.from.Read(p)
	if err != nil && err != io.EOF {
		k.mu.Lock()
		k.fault = err
		k.mu.Unlock()
	}
	return n, err
}

// Close does nothing. A failed attempt closes its body, but the next attempt may need the client's
// body. The ReverseProxy closes that in the end.
func (s *stream) Close() error { return nil }
