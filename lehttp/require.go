package lehttp

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Leadership says by which view this process may act. A
// *leaderelection.Campaign is one.
//
// Where it also has the Campaign's Status method, no new requests are served
// once leadership is being given up, so that those under way end while the lease
// is still kept; where it has Leader, a refusal's Retry-After is taken from that.
type Leadership interface {
	// View is the view of the present reign; never nil.
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

const (
	refused        = "refused" // the handler was not called
	lostLeadership = "lost"    // it was called; its answer was thrown away
)

// RequireOptions are for [RequireLeader]. The zero value is right for most.
type RequireOptions struct {
	// Otherwise serves the requests that come while this process does not
	// lead: a Router's Proxy or Redirect, with its LeaderID set. Nil: they are
	// answered 503.
	Otherwise http.Handler
	// MaxClockSkew is the Config's, for Retry-After.
	MaxClockSkew time.Duration
}

// RequireLeader returns a middleware that serves requests only while this
// process leads.
//
// Whether it does is asked of its view before the handler is called, and again
// before anything of the answer leaves the process. Where the view has ended
// meanwhile, also where another reign of the same process has begun, the answer
// is thrown away and the client told 503: what the handler did may have
// happened, but nobody is answered by a process that does not lead. An answer of
// which a part has left already is broken off, so that the client does not take
// it for complete; a hijacked connection is closed as soon as something is
// written to it.
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
	last     atomic.Pointer[reign]
}

// reign is what the answers of one reign have in common.
type reign struct {
	gate *gate
	view *leaderelection.TimeView
}

// under returns the reign of view.
func (g *gate) under(view *leaderelection.TimeView) *reign {
	r := g.last.Load()
	if r == nil || r.view != view {
		r = &reign{gate: g, view: view}
		g.last.Store(r)
	}
	return r
}

func (g *gate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	var view *leaderelection.TimeView
	if g.campaign != nil {
		view = g.campaign.View()
	} else {
		view = g.leads.View()
	}
	if !g.admits(view, r.Method) {
		if g.o.Otherwise != nil {
			g.o.Otherwise.ServeHTTP(w, r)
			return
		}
		w.Header().Set(notLeading, refused)
		g.refusal().answer(w)
		return
	}
	a := newAnswer(w, g.under(view))
	if h := w.Header(); len(h) > 0 {
		a.work.before = h.Clone()
	}
	next.ServeHTTP(a, r)
	a.finish()
}

// admits says whether a request may be served under view.
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
	// One's own reign, which is over or ends.
	no.retry = e.TermExpiry.Add(g.o.MaxClockSkew).Sub(view.Clock().Now().Round(0))
	return no
}
