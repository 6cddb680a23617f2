package lehttp

import (
	"io"
	"net/http"

	"github.com/c8e606e4/leaderelection/internal/route"
)

// home is the origin of a request that a RequireLeader has handed to its Otherwise. If this process
// is elected while a Proxy keeps the request, the request goes back there.
type home struct {
	host host
	next http.Handler
	r    *http.Request
}

// host is a RequireLeader or a RequireOwner.
type host interface {
	// election names the election of its refusals, as in ProxyOptions.Election.
	election(r *http.Request) string
	mayServe(r *http.Request) bool
	// serveHere lets next serve a request, or refuses it.
	serveHere(w http.ResponseWriter, r *http.Request, next http.Handler)
}

func (g *gate) election(*http.Request) string { return g.o.Election }

func (g *gate) mayServe(r *http.Request) bool { return g.admits(g.candidate.View(), r.Method) }

func (g *gate) serveHere(w http.ResponseWriter, r *http.Request, next http.Handler) {
	view := g.candidate.View()
	if !g.admits(view, r.Method) {
		g.refuse(w)
		return
	}
	g.lead(w, r, next, view)
}

type homeKey struct{}

// serve serves the request, or refuses it. It does not hand it to Otherwise again.
func (h *home) serve(w http.ResponseWriter, body io.ReadCloser) {
	r := h.r.WithContext(h.r.Context()) // a copy
	r.Body = body
	h.host.serveHere(w, r, h.next)
}

// comeHome is the error of a request that this process may serve itself by now.
type comeHome struct{ body *kept }

func (c *comeHome) Error() string { return "leaderelection: this process leads now" }

// serve hands the request back. Out is the ReverseProxy's copy of it.
func (c *comeHome) serve(w http.ResponseWriter, out *http.Request) {
	if h, ok := out.Context().Value(homeKey{}).(*home); ok {
		h.serve(w, c.body.home())
	}
}

// leadsHere reports whether a request came from a RequireLeader of this election that may serve it
// now.
func (t *sender) leadsHere(out *http.Request, s *route.State) bool {
	if !isHere(s, t.o.LeaderID) {
		return false
	}
	h, ok := out.Context().Value(homeKey{}).(*home)
	return ok && h.host.election(h.r) == t.o.Election && h.host.mayServe(h.r)
}
