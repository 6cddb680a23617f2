package lehttp

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/viewctx"
)

// Leadership says by which view this process may act. A
// *leaderelection.Campaign is one.
//
// Where it also has the Campaign's Status method, no new requests are served
// once leadership is being given up, so that those under way end while the lease
// is still kept; where it has Leader, a refusal's Retry-After is taken from that.
type Leadership interface {
	// View is the view of the present leadership; never nil.
	View() *leaderelection.TimeView
}

// The optional parts of a Campaign.
type (
	withStatus interface{ Status() leaderelection.Status }
	withLeader interface {
		Leader() leaderelection.RaceEntry
	}
)

// ErrNotLeading is what a handler's writes return once the view under which it
// was called has ended.
var ErrNotLeading = errors.New("leaderelection: this process does not lead any more")

// notLeading is the header by which RequireLeader tells a Proxy what became of a
// request.
const notLeading = "Leaderelection-Not-Leading"

// marks are what that header says, in the name of an election.
type marks struct {
	refused string // the handler was not called
	lost    string // it was called; its answer was thrown away
}

func marksOf(election string) marks {
	if election == "" {
		return marks{refused: "refused", lost: "lost"}
	}
	of := "; election=" + url.PathEscape(election)
	return marks{refused: "refused" + of, lost: "lost" + of}
}

// RequireOptions are for [RequireLeader]. The zero value is right for most.
type RequireOptions struct {
	// Otherwise serves the requests that come while this process does not
	// lead: a Router's Proxy or Redirect, with its LeaderID set. Nil: they are
	// answered 503.
	Otherwise http.Handler
	// MaxClockSkew is the Config's, for Retry-After.
	MaxClockSkew time.Duration
	// Election names the election, as ProxyOptions.Election does: a Proxy goes by
	// the refusals of its own election alone. Name it if requests pass through
	// services of several elections.
	Election string
}

// RequireLeader returns a middleware that serves requests only while this
// process leads.
//
// Whether it does is asked of its view before the handler is called, and again
// before anything of the answer leaves the process. Where the view has ended
// meanwhile, also where another leadership of the same process has begun, the answer
// is thrown away and the client told 503: what the handler did may have
// happened, but nobody is answered by a process that does not lead. An answer of
// which a part has left already is broken off, so that the client does not take
// it for complete; a hijacked connection is closed, at most a second after the view
// has ended.
//
// The request's ctx ends with the view, at most a second later, with the cause
// leaderelection.ErrExpired: work that waits for it, as a stream of events does,
// does not linger at a process that does not lead.
//
// A request with a safe method (GET, HEAD, OPTIONS, TRACE), which has no effect
// but its answer, is admitted by the Campaign's Status and judged by the view
// when it is answered. That halves the cost, which is that of reading the clock.
//
// It does not make the handler's writes elsewhere safe: that takes fencing, as in
// package fence.
func RequireLeader(l Leadership, options *RequireOptions) func(http.Handler) http.Handler {
	g := &gate{leads: l}
	if options != nil {
		g.o = *options
	}
	g.marks = marksOf(g.o.Election)
	g.campaign, _ = l.(*leaderelection.Campaign)
	g.status, _ = l.(withStatus)
	g.leader, _ = l.(withLeader)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}
}

// gate is a RequireLeader.
type gate struct {
	leads    Leadership
	campaign *leaderelection.Campaign // leads, where it is one: asked without indirect calls
	status   withStatus
	leader   withLeader
	o        RequireOptions
	marks
	last atomic.Pointer[leadership]
}

// leadership is what the answers of one leadership have in common.
type leadership struct {
	view    viewctx.View
	marks   *marks
	refusal func() *refusal
	ceased  string // what a client is told whose answer was thrown away
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
	view := g.view()
	if !g.admits(view, r.Method) {
		if g.o.Otherwise == nil {
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
	ctx := viewctx.New(r.Context(), view)
	defer ctx.Stop()
	next.ServeHTTP(a, r.WithContext(ctx))
	a.finish()
}

func (g *gate) view() *leaderelection.TimeView {
	if g.campaign != nil {
		return g.campaign.View()
	}
	return g.leads.View()
}

// admits reports whether a request may be served under view.
func (g *gate) admits(view *leaderelection.TimeView, method string) bool {
	switch {
	case g.campaign != nil:
		if g.campaign.Status() != leaderelection.Leading {
			return false
		}
	case g.status == nil:
		return view.ValueInFuture()
	case g.status.Status() != leaderelection.Leading:
		return false
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return view.ValueInFuture()
}

// refusal is why a request is not served.
func (g *gate) refusal() *refusal {
	no := &refusal{status: http.StatusServiceUnavailable, why: "this process does not lead"}
	if g.leader == nil {
		return no
	}
	e := g.leader.Leader()
	view := g.leads.View()
	if e.Vacant() || view.ElectionNumber() != e.ElectionNumber {
		return no // another leads, or may at once
	}
	// One's own leadership, which is over or ends.
	no.retry = e.TermExpiry.Add(g.o.MaxClockSkew).Sub(view.Clock().Now().Round(0))
	return no
}
