package lehttp

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/log/warnings"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// RedirectOptions are the settings of [Router.Redirect]. The zero value is right for most.
type RedirectOptions struct {
	// Scheme is the scheme of the leader's URL. Empty means the scheme that the client has
	// used, as far as this process can see: https if this process ended the TLS itself.
	Scheme string
	// LeaderID is this process's own LeaderID if it is a candidate. It then does not send
	// clients to itself while it holds the record but does not lead. If this process is
	// elected while a request waits, the answer sends the client here once more.
	LeaderID string
	// Election is as in ProxyOptions.
	Election string
	// Wait is how long a request may wait for a leader, as in ProxyOptions, with the same
	// default.
	Wait time.Duration
	// Addresses returns the leader's addresses, as in ProxyOptions. It is called for each
	// request. Nil means the leader's HostPorts.
	Addresses func(leader leaderelection.RaceEntry) []string
	// CheckAddress returns an error for an address to which no client may be sent, as in
	// ProxyOptions. It is called for each request. Nil means the same as there.
	CheckAddress func(hostPort string) error
	// Logger gets leaders with useless addresses, and loops. Nil means slog.Default() from Warn
	// on, as in Config.
	Logger *slog.Logger
}

// Redirect returns a handler that answers 307 with the leader's URL for the same path and query.
// Use it if clients can reach the leader's first allowed address themselves. They repeat the
// request there, with method and body. Each client decides whether it sends cookies and credentials
// to that name.
//
// While there is no leader, the request waits, and nothing is read of its body. If no leader is known
// in time, Redirect answers 503, with Retry-After until the earliest time at which there can be one. If
// the leader's address is the one that the client came to, it answers 508.
func (r *Router) Redirect(opts *RedirectOptions) http.Handler {
	var o RedirectOptions
	if opts != nil {
		o = *opts
	}
	if o.CheckAddress == nil {
		o.CheckAddress = route.CheckAddress
	}
	o.Logger = warnings.Or(o.Logger)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		address, no := r.find(req, &o)
		if no != nil {
			no.answer(w)
			return
		}
		w.Header().Set("Location", o.location(address, req))
		w.Header().Set("Cache-Control", "no-store") // the next leader has another address
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
}

// find waits for a leader to send a request to.
func (r *Router) find(req *http.Request, o *RedirectOptions) (string, *refusal) {
	var wait patience
	home := homeOf(req, o.LeaderID, o.Election)
	for {
		if req.Host != "" && home.open() {
			return req.Host, nil // the client repeats it here
		}
		s := r.table.Load()
		address, no := r.away(s, req, o)
		if no == nil || !no.untouched || req.Header.Get(sentBy) != "" || !wait.forChange(req.Context(), o.Wait, s, longPause, home != nil) {
			return address, no
		}
	}
}

// away returns the leader's address, or why a request cannot be sent there.
func (r *Router) away(s *route.State, req *http.Request, o *RedirectOptions) (string, *refusal) {
	if no := unled(s, o.LeaderID); no != nil {
		return "", no
	}
	addresses, fault := route.Addresses(&s.Entry, o.Addresses, o.CheckAddress)
	switch {
	case len(addresses) == 0:
		complain(o.Logger, s, fault.Error())
		return "", &refusal{status: http.StatusServiceUnavailable, why: "the leader cannot be reached", retry: s.UntilNext()}
	case sameHost(addresses[0], req.Host, o.scheme(req)):
		complain(o.Logger, s, "a client of the leader's HostPort came to a redirector: it names what routes to the leader")
		return "", loopRefusal(&s.Entry)
	}
	return addresses[0], nil
}

// sameHost reports whether two hosts are the same for a client of the scheme. Either may lack the
// scheme's default port.
func sameHost(a, b, scheme string) bool {
	return strings.EqualFold(withPort(a, scheme), withPort(b, scheme))
}

func withPort(host, scheme string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	port := "80"
	if scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// scheme returns the scheme of the leader's URL for a client.
func (o *RedirectOptions) scheme(req *http.Request) string {
	switch {
	case o.Scheme != "":
		return o.Scheme
	case req.TLS != nil:
		return "https"
	}
	return "http"
}

func (o *RedirectOptions) location(address string, req *http.Request) string {
	uri := req.URL.RequestURI()
	if !strings.HasPrefix(uri, "/") {
		uri = "/" // OPTIONS *, CONNECT
	}
	return o.scheme(req) + "://" + address + uri
}
