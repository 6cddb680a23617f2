package lehttp

import (
	"context"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/viewctx"
)

// notLeading is the header by which RequireLeader tells a Proxy what became of a request.
const notLeading = "Leaderelection-Not-Leading"

// sentBy is the header by which a Proxy says that it keeps the request itself. The receiver serves
// such a request or refuses it at once. If a client sets the header, that client is only refused
// sooner than others.
const sentBy = "Leaderelection-Sent-By"

// marks are the values of these headers, for one election.
type marks struct {
	refused string // the handler was not called
	lost    string // it was called; its answer was thrown away
	sent    string // by a Proxy
}

func marksOf(election string) marks {
	of := ""
	if election != "" {
		of = "; election=" + url.PathEscape(election)
	}
	return marks{refused: "refused" + of, lost: "lost" + of, sent: "proxy" + of}
}

// RequireOptions are the settings of [RequireLeader]. The zero value is right for most.
type RequireOptions struct {
	// Otherwise serves the requests that come while this process does not lead: a Router's
	// Proxy or Redirect, with its LeaderID set. Nil means the answer 503. Such a request is
	// also answered 503 if a Proxy of this election has sent it: that Proxy keeps it itself.
	Otherwise http.Handler
	// MaxClockSkew is that of the Config. It is used for Retry-After.
	MaxClockSkew time.Duration
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
// leaderelection.ErrExpired. So work that waits for the ctx, such as a stream of events, does not
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
	g := &gate{candidate: c}
	if opts != nil {
		g.o = *opts
	}
	g.marks = marksOf(g.o.Election)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}
}

// gate is a RequireLeader.
type gate struct {
	candidate leaderelection.Candidate
	o         RequireOptions
	marks
	last atomic.Pointer[leadership]
}

// leadership has what the answers of one leadership share.
type leadership struct {
	view    viewctx.View
	marks   *marks
	refusal func() *refusal
	ceased  string // told to a client whose answer was thrown away
}

const ceasedToLead = "this process has ceased to lead while it worked on the request, which may have taken effect"

// under returns the leadership of view.
func (g *gate) under(view *leaderelection.TimeView) *leadership {
	r := g.last.Load()
	if r == nil || r.view != view {
		r = &leadership{view: view, marks: &g.marks, refusal: g.refusal, ceased: ceasedToLead}
		g.last.Store(r)
	}
	return r
}

func (g *gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	view := g.candidate.View()
	if !g.admits(view, r.Method) {
		if g.o.Otherwise == nil || r.Header.Get(sentBy) == g.sent {
			g.refuse(w)
			return
		}
		h := &home{host: g, next: next, r: r}
		g.o.Otherwise.ServeHTTP(&relayed{w, g.refused}, r.WithContext(context.WithValue(r.Context(), homeKey{}, h)))
		return
	}
	g.lead(w, r, next, view)
}

// refuse answers a request that nobody works on.
func (g *gate) refuse(w http.ResponseWriter) {
	w.Header().Set(notLeading, g.refused)
	g.refusal().answer(w)
}

// lead lets next serve a request under view.
func (g *gate) lead(w http.ResponseWriter, r *http.Request, next http.Handler, view *leaderelection.TimeView) {
	a := newAnswer(w, g.under(view))
	if h := w.Header(); len(h) > 0 {
		a.work.before = h.Clone()
	}
	delete(r.Header, sentBy) // it is for this process, not for a server to which the handler passes the request
	ctx := viewctx.New(r.Context(), view)
	defer ctx.Stop()
	next.ServeHTTP(a, r.WithContext(ctx))
	a.finish()
}

// admits reports whether a request may be served under view.
func (g *gate) admits(view *leaderelection.TimeView, method string) bool {
	if g.candidate.Status() != leaderelection.Leading {
		return false
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return view.ValueInFuture()
}

// refusal returns why a request is not served.
func (g *gate) refusal() *refusal {
	no := &refusal{status: http.StatusServiceUnavailable, why: "this process does not lead"}
	e, view := g.candidate.Leader(), g.candidate.View()
	if e.Vacant() || view.ElectionNumber() != e.ElectionNumber {
		return no // another leads, or may at once
	}
	// This process's own leadership, which is over or is ending.
	no.retry = e.TermExpiry.Add(g.o.MaxClockSkew).Sub(view.Clock().Now().Round(0))
	return no
}
