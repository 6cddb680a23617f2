package lehttp

import (
	"io"
	"net/http"

	"github.com/c8e606e4/leaderelection/internal/route"
)

// home is where a request came from that a RequireLeader has handed to its Otherwise:
// if this process is elected while a Proxy keeps the request, it goes back there.
type home struct {
	gate *gate
	next http.Handler
	r    *http.Request
}

type homeKey struct{}

// serve serves the request, or refuses it: it does not go to Otherwise again.
func (h *home) serve(w http.ResponseWriter, body io.ReadCloser) {
	view := h.gate.view()
	if !h.gate.admits(view, h.r.Method) {
		h.gate.refuse(w)
		return
	}
	r := h.r.WithContext(h.r.Context()) // a copy
	r.Body = body
	h.gate.lead(w, r, h.next, view)
}

// comeHome is the error of a request that this process may serve itself by now.
type comeHome struct{ body *kept }

func (c *comeHome) Error() string { return "leaderelection: this process leads now" }

// serve hands the request back. Out is what the ReverseProxy has made of it.
func (c *comeHome) serve(w http.ResponseWriter, out *http.Request) {
	if h, ok := out.Context().Value(homeKey{}).(*home); ok {
		h.serve(w, c.body.home())
	}
}

// leadsHere reports whether a request that came from a RequireLeader of this election
// may be served by that.
func (t *sender) leadsHere(out *http.Request, s *route.State) bool {
	if !isHere(s, t.o.LeaderID) {
		return false
	}
	h, ok := out.Context().Value(homeKey{}).(*home)
	return ok && h.gate.o.Election == t.o.Election && h.gate.admits(h.gate.view(), out.Method)
}
