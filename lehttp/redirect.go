package lehttp

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// RedirectOptions are for [Router.Redirect]. The zero value is right for most.
type RedirectOptions struct {
	// Scheme is that of the leader's URL. Empty: the one that the client came
	// by, as far as this process can see (https where it ended the TLS itself).
	Scheme string
	// LeaderID is this process's own where it is a candidate, so that it does
	// not send clients to itself in the moments in which it holds the record
	// but does not lead.
	LeaderID string
	// Addresses chooses where the leader is, as in ProxyOptions. It is asked for each
	// request. Nil: its HostPorts.
	Addresses func(leader leaderelection.RaceEntry) []string
	// CheckAddress returns an error for an address that no client may be sent to,
	// as in ProxyOptions. It is asked for each request. Nil: link-local, multicast
	// and unspecified addresses are refused.
	CheckAddress func(hostPort string) error
	// Logger is told of a leader whose addresses are useless, and of loops.
	// Nil: silence.
	Logger *slog.Logger
}

// Redirect returns a handler that answers 307 with the leader's URL for the same
// path and query: clients repeat the request there, with method and body. They
// must be able to reach the leader's first address themselves; cookies and
// credentials are theirs to send to that name or not.
//
// While there is no leader it answers 503, with Retry-After until the earliest
// time at which there can be one, and where the leader's address is the one that
// the client came to, 508.
func (r *Router) Redirect(options *RedirectOptions) http.Handler {
	var o RedirectOptions
	if options != nil {
		o = *options
	}
	if o.CheckAddress == nil {
		o.CheckAddress = route.CheckAddress
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s := r.table.Load()
		address, no := r.away(s, req, &o)
		if no != nil {
			no.answer(w)
			return
		}
		w.Header().Set("Location", o.location(address, req))
		w.Header().Set("Cache-Control", "no-store") // the next leader has another address
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
}

// away returns where the leader is, or why a request cannot be sent there.
func (r *Router) away(s *route.State, req *http.Request, o *RedirectOptions) (string, *refusal) {
	if no := unled(s, o.LeaderID); no != nil {
		return "", no
	}
	addresses, fault := s.Select(o.Addresses)
	for _, address := range addresses {
		if err := o.CheckAddress(address); err != nil {
			fault = errors.Join(fault, err)
			continue
		}
		if strings.EqualFold(address, req.Host) {
			r.complain(o.Logger, s, "a client of the leader's HostPort came to a redirector: it names what routes to the leader")
			return "", loopRefusal(&s.Entry)
		}
		return address, nil
	}
	r.complain(o.Logger, s, fault.Error())
	return "", &refusal{status: http.StatusServiceUnavailable, why: "the leader cannot be reached", retry: s.UntilNext()}
}

func (o *RedirectOptions) location(address string, req *http.Request) string {
	scheme := o.Scheme
	switch {
	case scheme != "":
	case req.TLS != nil:
		scheme = "https"
	default:
		scheme = "http"
	}
	uri := req.URL.RequestURI()
	if !strings.HasPrefix(uri, "/") {
		uri = "/" // OPTIONS *, CONNECT
	}
	return scheme + "://" + address + uri
}
