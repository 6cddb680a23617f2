package lehttp

import (
	"io"
	"net/http"
)

// home is the origin of a request that a gate has handed to its Otherwise. If this process may serve
// it while a Proxy keeps it, the request goes back there.
type home struct {
	gate     gate
	election string // the gate's
	next     http.Handler
	r        *http.Request
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

// homeOf returns the origin of a request that came from a gate of the election, or nil.
func homeOf(r *http.Request, leaderID, election string) *home {
	if h, ok := r.Context().Value(homeKey{}).(*home); ok && leaderID != "" && h.election == election {
		return h
	}
	return nil
}

// open reports whether the gate would serve the request now.
func (h *home) open() bool {
	if h == nil {
		return false
	}
	_, may := h.gate(h.r)
	return may
}

// mayComeHome reports whether a request came from a gate of this election, which may open.
func (t *sender) mayComeHome(out *http.Request) bool {
	return homeOf(out, t.o.LeaderID, t.o.Election) != nil
}

// leadsHere reports whether a request came from a gate of this election that may serve it now.
func (t *sender) leadsHere(out *http.Request) bool {
	return homeOf(out, t.o.LeaderID, t.o.Election).open()
}
