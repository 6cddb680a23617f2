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

// sender is the Proxy as the RoundTripper of its ReverseProxy: it finds the
// leader, and again where leadership changes hands under a request.
type sender Proxy

// fate is what became of one attempt.
type fate int

const (
	answered  fate = iota // by the leader
	untouched             // nobody has worked on it: no connection, or refused by RequireLeader
	uncertain             // it may have been worked on: the connection broke, or leadership did
)

// The pauses between two attempts at the same leader, where it cannot be reached
// or does not know yet that it leads.
const (
	firstPause = 2 * time.Millisecond
	longPause  = 100 * time.Millisecond
)

// RoundTrip sends out to the leader. Out is the ReverseProxy's own copy of the
// client's request, so it may be changed.
func (t *sender) RoundTrip(out *http.Request) (*http.Response, error) {
	body, err := t.keep(out)
	if err != nil {
		return nil, err
	}
	var (
		wait  patience
		pause = firstPause
		sent  = false // an attempt has been uncertain
		res   *http.Response
	)
	for first := true; ; {
		s := t.router.table.Load()
		what := untouched
		if no := unled(s, t.o.LeaderID); no != nil {
			res, err = nil, no
			t.checkAddresses(s)
		} else {
			if !first {
				out = body.again(out)
			}
			first = false
			res, what, err = t.attempt(out, s)
		}
		if what == answered {
			return res, nil
		}
		if what == uncertain && (sent || !idempotent(out)) || !body.replayable() || !t.worthwhile(s, what) {
			return t.giveUp(res, s, err)
		}
		held := res
		if what == uncertain {
			sent = true
			if !wait.forReign(out.Context(), t.o.Wait, t.router, s) {
				return t.giveUp(held, s, err)
			}
		} else if !wait.forChange(out.Context(), t.o.Wait, s, pause) {
			return t.giveUp(held, s, err)
		}
		discard(held)
		pause = min(2*pause, longPause)
	}
}

// worthwhile says whether a leader can come while a request waits.
func (t *sender) worthwhile(s *route.State, what fate) bool {
	switch {
	case t.o.Wait < 0:
		return false
	case s.Led():
		return what == uncertain || len(s.Addresses) > 0
	}
	return s.UntilNext() <= t.o.Wait
}

// giveUp returns the last outcome. A refusal by RequireLeader is told as one of
// the proxy's own: there is no leader for this request.
func (t *sender) giveUp(res *http.Response, s *route.State, err error) (*http.Response, error) {
	if res == nil {
		return nil, err
	}
	if res.Header.Get(notLeading) == lostLeadership {
		return res, nil
	}
	discard(res)
	no := &refusal{status: http.StatusServiceUnavailable, retry: s.UntilNext()}
	no.why = fmt.Sprintf("%q, which led last, does not lead any more", s.Entry.LeaderID)
	return nil, no
}

// attempt sends out to the leader of s, at the first of its addresses that takes
// a connection.
func (t *sender) attempt(out *http.Request, s *route.State) (*http.Response, fate, error) {
	addresses := (*Proxy)(t).order(s)
	for i, address := range addresses {
		out.URL.Scheme, out.URL.Host = t.o.Scheme, address
		res, err := t.o.Transport.RoundTrip(out)
		switch {
		case err == nil:
			if i > 0 {
				(*Proxy)(t).prefer(s, address)
			}
			return res, fateOf(res), nil
		case out.Context().Err() != nil:
			return nil, uncertain, err
		case !unconnected(err):
			return nil, uncertain, err
		case i == len(addresses)-1:
			return nil, untouched, fmt.Errorf("connecting to leader %q of reign %d: %w", s.Entry.LeaderID, s.Entry.ElectionNumber, err)
		}
	}
	return nil, untouched, errors.New("leaderelection: the leader has no address") // not reached: unled
}

// fateOf reads what RequireLeader says of an answer.
func fateOf(res *http.Response) fate {
	if res.StatusCode != http.StatusServiceUnavailable {
		return answered
	}
	switch res.Header.Get(notLeading) {
	case refused:
		return untouched
	case lostLeadership:
		return uncertain
	}
	return answered
}

// unconnected says whether err shows that no connection was made.
func unconnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// order returns the leader's addresses, the one that answered last first.
func (p *Proxy) order(s *route.State) []string {
	if len(s.Addresses) < 2 {
		return s.Addresses
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reach.number != s.Entry.ElectionNumber {
		return s.Addresses
	}
	ordered := []string{p.reach.first}
	for _, a := range s.Addresses {
		if a != p.reach.first {
			ordered = append(ordered, a)
		}
	}
	return ordered
}

func (p *Proxy) prefer(s *route.State, address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reach = reachable{s.Entry.ElectionNumber, address}
}

// checkAddresses complains where a leader is there and its addresses are not.
func (t *sender) checkAddresses(s *route.State) {
	if s.Led() && len(s.Addresses) == 0 {
		t.router.complain(t.o.Logger, s, s.Fault.Error())
	}
}

// idempotent says whether a request may be carried out twice (RFC 9110, 9.2.2).
// The two headers are those that net/http's Transport goes by.
func idempotent(r *http.Request) bool {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return len(r.Header["Idempotency-Key"]) > 0 || len(r.Header["X-Idempotency-Key"]) > 0
}

// patience is how long a request has waited; it begins when that does.
type patience struct{ until time.Time }

func (p *patience) left(wait time.Duration) time.Duration {
	if p.until.IsZero() {
		p.until = time.Now().Add(wait)
	}
	return time.Until(p.until)
}

// forChange waits until there is news since s, or, where somebody leads, for a
// pause. It says whether to try again.
func (p *patience) forChange(ctx context.Context, wait time.Duration, s *route.State, pause time.Duration) bool {
	left := p.left(wait)
	if left <= 0 {
		return false
	}
	if !s.Led() {
		pause = left // only news can help
	}
	return sleep(ctx, s, min(left, pause))
}

// forReign waits until somebody leads a reign other than that of s.
func (p *patience) forReign(ctx context.Context, wait time.Duration, r *Router, s *route.State) bool {
	number := s.Entry.ElectionNumber
	for {
		now := r.table.Load()
		if now.Led() && now.Entry.ElectionNumber != number {
			return true
		}
		left := p.left(wait)
		if left <= 0 || !now.Led() && now.UntilNext() > left || !sleep(ctx, now, left) {
			return false
		}
	}
}

// sleep returns true after d, or when there is news since s, and false when ctx
// has ended.
func sleep(ctx context.Context, s *route.State, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-s.Changed():
	case <-timer.C:
	}
	return true
}

// discard frees an answer that is not passed on, and its connection where it is
// short.
func discard(res *http.Response) {
	if res == nil {
		return
	}
	_, _ = io.CopyN(io.Discard, res.Body, 4<<10)
	_ = res.Body.Close()
}

// kept is a request's body, and whether it can be sent again.
type kept struct {
	bytes []byte // all of it, where whole
	whole bool
	from  io.Reader // else the client's, streamed

	mu   sync.Mutex
	read bool    // the beginning of from is gone
	last *stream // the body of the latest attempt
}

// keep prepares the body of out for being sent more than once.
func (t *sender) keep(out *http.Request) (*kept, error) {
	k := &kept{}
	switch n := out.ContentLength; {
	case out.Body == nil || out.Body == http.NoBody:
		k.whole = true
	case n > 0 && n <= t.o.KeepBody && out.Header.Get("Expect") == "":
		k.bytes, k.whole = make([]byte, n), true
		if _, err := io.ReadFull(out.Body, k.bytes); err != nil {
			return nil, &refusal{status: http.StatusBadRequest, why: "the request's body broke off"}
		}
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(k.bytes)), nil }
		out.Body, _ = out.GetBody()
	default:
		k.from = out.Body
		k.last = &stream{k: k}
		out.Body = k.last
	}
	return k, nil
}

// replayable says whether the body can be sent from its beginning. If so, the
// attempt before cannot read of it any more.
func (k *kept) replayable() bool {
	if k.whole {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.read {
		return false
	}
	k.last.over = true
	return true
}

// again returns out for another attempt. It is a copy, since the attempt before
// may still be looking at out.
func (k *kept) again(out *http.Request) *http.Request {
	next := out.Clone(out.Context())
	switch {
	case next.GetBody != nil:
		next.Body, _ = next.GetBody()
	case k.from != nil:
		k.last = &stream{k: k}
		next.Body = k.last
	}
	return next
}

// stream is a streamed body as one attempt sees it.
type stream struct {
	k    *kept
	over bool // another attempt has begun; under k.mu
}

var errOver = errors.New("leaderelection: the request is being sent elsewhere")

func (s *stream) Read(p []byte) (int, error) {
	s.k.mu.Lock()
	if s.over {
		s.k.mu.Unlock()
		return 0, errOver
	}
	s.k.read = true
	s.k.mu.Unlock()
	return s.k.from.Read(p)
}

// Close does nothing: a failed attempt closes its body, and another may need
// it. The ReverseProxy closes the client's in the end.
func (s *stream) Close() error { return nil }
