package lehttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// way is what a Proxy has found out about the way to a leader. All requests share it: a leader that
// has crashed is dialled a few times a second, however many requests wait for it.
type way struct {
	mu        sync.Mutex
	state     *route.State  // the state from which the rest was worked out
	known     []string      // its allowed addresses
	addresses []string      // the same; first the one that answered last
	refusal   error         // why others are not allowed
	fault     error         // why the last dial failed; nil: it did not
	next      time.Time     // if it failed: when the leader may be dialled again
	pause     time.Duration // if it failed: how long other requests wait after that

	trip  http.RoundTripper // for this leadership
	close func()            // frees trip when the leadership is over
}

// The pauses between two dials of a leader that takes no connection.
const (
	firstDialPause = 50 * time.Millisecond
	longDialPause  = 500 * time.Millisecond
)

// number returns the number of the leadership.
func (w *way) number() leaderelection.ElectionNumber {
	if w.state == nil {
		return leaderelection.NoElections
	}
	return w.state.Entry.ElectionNumber
}

// errMovedOn makes a request look for the leader again.
var errMovedOn = errors.New("leaderelection: leadership has moved on")

// look brings the way up to date with s. The caller holds w.mu.
func (w *way) look(s *route.State, t *sender) error {
	switch {
	case w.state == s:
		return nil
	case w.state != nil && s.Entry.Compare(&w.state.Entry) < 0:
		return errMovedOn
	}
	allowed, refusal := route.Addresses(&s.Entry, t.o.Addresses, t.o.CheckAddress)
	same := w.number() == s.Entry.ElectionNumber && w.trip != nil
	w.state, w.refusal = s, refusal
	if same && slices.Equal(allowed, w.known) {
		return nil // an extension
	}
	w.fault, w.addresses, w.known = nil, allowed, allowed
	if !same {
		if err := w.dress(s, t); err != nil {
			w.refusal, w.addresses = errors.Join(w.refusal, err), nil
		}
	}
	return nil
}

// dress finds the transport for a new leadership. With TLSFor each leadership has its own, so that
// a connection to one leader is not used for the next. The caller holds w.mu.
func (w *way) dress(s *route.State, t *sender) error {
	if t.own == nil || t.o.TLSFor == nil {
		w.trip = t.o.Transport
		return nil
	}
	w.shut()
	config, err := t.o.TLSFor(*s.Entry.Clone())
	if err != nil {
		return fmt.Errorf("TLSFor leader %q with token %d: %w", s.Entry.LeaderID, s.Entry.ElectionNumber, err)
	}
	transport := newTransport(t.strict, config)
	w.trip, w.close = transport, transport.CloseIdleConnections
	return nil
}

// shut closes the idle connections of a leadership's own transport, and forgets it. The caller
// holds w.mu.
func (w *way) shut() {
	if w.close != nil {
		w.close()
	}
	w.trip, w.close = nil, nil
}

// begin returns the addresses to try, in order, and the transport to use. There are no addresses if
// none is allowed, or if the leader must not be dialled now. The error says why, or why some
// addresses are not allowed.
func (w *way) begin(s *route.State, t *sender) (addresses []string, trip http.RoundTripper, allowed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.look(s, t); err != nil {
		return nil, nil, true, err
	}
	if len(w.addresses) == 0 {
		return nil, nil, false, w.refusal
	}
	if w.fault != nil {
		now := time.Now()
		if now.Before(w.next) {
			return nil, nil, true, w.fault
		}
		w.next = now.Add(w.pause) // for all requests but this one
		w.pause = min(2*w.pause, longDialPause)
	}
	return w.addresses, w.trip, true, w.refusal
}

// reached notes that the leader of s took a connection. If first is true, address is tried first
// from now on.
func (w *way) reached(s *route.State, address string, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.number() != s.Entry.ElectionNumber {
		return
	}
	w.fault = nil
	if first && slices.Index(w.addresses, address) > 0 {
		rest := slices.DeleteFunc(slices.Clone(w.addresses), func(a string) bool { return a == address })
		w.addresses = append([]string{address}, rest...)
	}
}

// failed notes that none of the addresses took a connection.
func (w *way) failed(s *route.State, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.number() != s.Entry.ElectionNumber {
		return
	}
	if w.fault == nil {
		w.pause = firstDialPause
		w.next = time.Now().Add(w.pause)
	}
	w.fault = err
}

// patience is how long a request may still wait. It begins to count when the request begins to
// wait.
type patience struct{ until time.Time }

func (p *patience) left(wait time.Duration, s *route.State) time.Duration {
	if p.until.IsZero() {
		p.until = time.Now().Add(patient(wait, s.Entry.TermLength))
	}
	return time.Until(p.until)
}

// forChange waits until there is news since s. If somebody leads, or if this process may lead before
// its router hears of that (home), it waits for at most pause. It reports whether to try again.
func (p *patience) forChange(ctx context.Context, wait time.Duration, s *route.State, pause time.Duration, home bool) bool {
	left := p.left(wait, s)
	if left <= 0 {
		return false
	}
	if !s.Led() && !home {
		pause = left // only news can help
	}
	return sleep(ctx, s, min(left, pause))
}

// forLeadership waits until there is a leader by another leadership than that of s.
func (p *patience) forLeadership(ctx context.Context, wait time.Duration, r *Router, s *route.State) bool {
	number := s.Entry.ElectionNumber
	for {
		now := r.table.Load()
		if now.Led() && now.Entry.ElectionNumber != number {
			return true
		}
		left := p.left(wait, s)
		if left <= 0 || now.Removed() || !sleep(ctx, now, left) {
			return false
		}
	}
}

// sleep returns true after d, or when there is news since s. It returns false when ctx has ended.
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
