package lehttp

import (
	"context"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/viewctx"
	"github.com/c8e606e4/leaderelection/shard"
)

// notLeading is the header by which RequireLeader tells a Proxy what became of a request.
const notLeading = "Leaderelection-Not-Leading"

// sentBy is the header by which a Proxy says that it keeps the request itself. The receiver serves
// such a request or refuses it at once. If a client sets the header, that client is only refused
// sooner than others.
const sentBy = "Leaderelection-Sent-By"

// marks are the values of these headers, for one election.
type marks struct {
	election string // as ProxyOptions.Election names it

	refused string // the handler was not called
	lost    string // it was called; its answer was thrown away
	sent    string // by a Proxy
}

func marksOf(election string) marks {
	of := ""
	if election != "" {
		of = "; election=" + url.PathEscape(election)
	}
	return marks{election: election, refused: "refused" + of, lost: "lost" + of, sent: "proxy" + of}
}

// RequireOptions are the settings of [RequireLeader]. The zero value is right for most.
type RequireOptions struct {
	// Otherwise serves the requests that come while this process does not lead: a Router's
	// Proxy or Redirect, with its LeaderID set. Nil means the answer 503. Such a request is
	// also answered 503 if a Proxy of this election has sent it: that Proxy keeps it itself.
	Otherwise http.Handler
	// Election names the election, as ProxyOptions.Election does: a Proxy believes only the
	// refusals of its own election. Set it if requests pass through services of several
	// elections.
	Election string
}

// RequireLeader returns a middleware that serves requests only while this process leads. Put it in
// front of the handlers of a candidate.
//
// It asks the view before the handler is called, and again before any part of the answer leaves the
// process. If the view has ended meanwhile, it throws the answer away and answers 503, even if
// another leadership of this process has begun. The handler's work may have happened, but a
// process that does not lead answers nobody. If a part of the answer has left already, the rest
// is broken off, so that the client does not take it for complete. A hijacked connection is
// closed at most a second after the view has ended.
//
// The request's ctx ends with the view, at most a second later, with the cause
// leaderelection.ErrNotLeading. So work that waits for the ctx, such as a stream of events, does not
// linger at a process that does not lead.
//
// A request with a safe method (GET, HEAD, OPTIONS, TRACE) has no effect but its answer. It is
// admitted by the Campaign's Status, and the view is asked only when it is answered. That halves
// the cost, which is that of reading the clock.
//
// The handler gets the view of the leadership under which its request was admitted, by
// [leaderelection.ViewFrom] and the request's ctx. Take the fencing token from that view, not from
// Campaign.View: the process may have lost leadership since, and won it again.
//
// RequireLeader does not make the handler's writes to other resources safe. That takes fencing, see
// package fence.
//
// Once leadership is being given up, RequireLeader serves no new requests, so that the requests
// under way end while the lease is still kept.
func RequireLeader(c leaderelection.Candidate, opts *RequireOptions) func(http.Handler) http.Handler {
	l := &leaders{candidate: c}
	if opts != nil {
		l.o = *opts
	}
	l.marks = marksOf(l.o.Election)
	return gate(l.admit).middleware(l.o.Otherwise)
}

// gate is a RequireLeader or a RequireOwner. It returns what a request is served or refused under,
// and whether it may be served now. Nil means that the request names no shard.
type gate func(r *http.Request) (l *leadership, may bool)

// leadership has what the answers of one leadership share.
type leadership struct {
	view    viewctx.View
	marks   *marks
	refusal func() *refusal
	ceased  string       // told to a client whose answer was thrown away
	owned   *shard.Owned // nil with RequireLeader
}

func (g gate) middleware(otherwise http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next, otherwise) })
	}
}

func (g gate) serve(w http.ResponseWriter, r *http.Request, next, otherwise http.Handler) {
	l, may := g(r)
	switch {
	case l == nil:
		noShard.answer(w)
	case may:
		l.serve(w, r, next)
	case otherwise == nil || r.Header.Get(sentBy) == l.marks.sent: // nobody works on it
		w.Header().Set(notLeading, l.marks.refused)
		l.refusal().answer(w)
	default:
		h := &home{gate: g, next: next, r: r}
		otherwise.ServeHTTP(&relayed{w, l.marks.refused}, r.WithContext(context.WithValue(r.Context(), homeKey{}, h)))
	}
}

// serve lets next serve a request.
func (l *leadership) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	a := newAnswer(w, l)
	if h := w.Header(); len(h) > 0 {
		a.work.before = h.Clone()
	}
	delete(r.Header, sentBy) // it is for this process, not for a server to which the handler passes the request
	parent := r.Context()
	if l.owned != nil {
		parent = shard.WithOwned(parent, l.owned)
	}
	ctx := viewctx.New(parent, l.view)
	defer ctx.Stop()
	next.ServeHTTP(a, r.WithContext(ctx))
	a.finish()
}

// leaders are the leaderships of one candidate.
type leaders struct {
	candidate leaderelection.Candidate
	o         RequireOptions
	marks
	last atomic.Pointer[leadership]
}

// admit is the gate of RequireLeader.
func (l *leaders) admit(r *http.Request) (*leadership, bool) {
	view := l.candidate.View()
	last := l.last.Load()
	if last == nil || last.view != view {
		last = &leadership{view: view, marks: &l.marks, refusal: l.refusal,
			ceased: "this process has ceased to lead while it worked on the request, which may have taken effect"}
		l.last.Store(last)
	}
	if l.candidate.Status() != leaderelection.Leading {
		return last, false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return last, true
	}
	return last, view.ValueInFuture()
}

// refusal returns why a request is not served.
func (l *leaders) refusal() *refusal {
	no := &refusal{status: http.StatusServiceUnavailable, why: "this process does not lead"}
	e, view := l.candidate.Leader(), l.candidate.View()
	if e.Vacant() || view.ElectionNumber() != e.ElectionNumber {
		return no // another leads, or may at once
	}
	// This process's own leadership, which is over or is ending.
	no.retry = e.TermExpiry.Add(leaderelection.DefaultMaxClockSkew).Sub(view.Clock().Now().Round(0))
	return no
}
