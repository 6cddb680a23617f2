package lehttp

import (
	"io"
	"net/http"

	"github.com/c8e606e4/leaderelection/internal/route"
)

// home is the origin of a request that a gate has handed to its Otherwise. If this process may serve
// it while a Proxy keeps it, the request goes back there.
type home struct {
	gate gate
	next http.Handler
	r    *http.Request
}

type homeKey struct{}

// serve serves the request, or refuses it. It does not hand it to Otherwise again.
func (h *home) serve(w http.ResponseWriter, body io.ReadCloser) {
	r := h.r.WithContext(h.r.Context()) // a copy
	r.Body = body
	h.gate.serve(w, r, h.next, nil)
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

// leadsHere reports whether a request came from a gate of this election that may serve it now.
func (t *sender) leadsHere(out *http.Request, s *route.State) bool {
	if !isHere(s, t.o.LeaderID) {
		return false
	}
	h, ok := out.Context().Value(homeKey{}).(*home)
	if !ok {
		return false
	}
	l, may := h.gate(h.r)
	return may && l.marks.election == t.o.Election
}
