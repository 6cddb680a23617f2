package lehttp

import (
	"io"
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
	// Logger is told of a leader whose addresses are useless, and of loops.
	// Nil: silence.
	Logger *slog.Logger
}

// Redirect returns a handler that answers 307 with the leader's URL for the same
// path and query: clients repeat the request there, with method and body. They
// must be able to reach the leader's first HostPort themselves; cookies and
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
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s := r.table.Load()
		if no := r.away(s, req, &o); no != nil {
			no.answer(w)
			return
		}
		w.Header().Set("Location", o.location(s, req))
		w.Header().Set("Cache-Control", "no-store") // the next leader has another address
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
}

// away is why a request cannot be sent to the leader, or nil.
func (r *Router) away(s *route.State, req *http.Request, o *RedirectOptions) *refusal {
	if no := unled(s, o.LeaderID); no != nil {
		if s.Led() && len(s.Addresses) == 0 {
			r.complain(o.Logger, s, s.Fault.Error())
		}
		return no
	}
	if strings.EqualFold(s.Addresses[0], req.Host) {
		r.complain(o.Logger, s, "a client of the leader's HostPort came to a redirector: it names what routes to the leader")
		return loopRefusal(&s.Entry)
	}
	return nil
}

func (o *RedirectOptions) location(s *route.State, req *http.Request) string {
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
	return scheme + "://" + s.Addresses[0] + uri
}

// Ready returns a handler for a load balancer's or an orchestrator's readiness
// probe, where traffic is to reach the leader alone: 200 while this process
// leads and has not begun to give that up, else 503. It asks nobody, and costs
// no more than reading the clock.
//
// It is no liveness probe: a standby is healthy, and must not be restarted.
func Ready(l Leadership) http.Handler {
	status, _ := l.(withStatus)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leads := l.View().ValueInFuture() && (status == nil || status.Status() == leaderelection.Leading)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if !leads {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "not leading\n")
			return
		}
		_, _ = io.WriteString(w, "leading\n")
	})
}
