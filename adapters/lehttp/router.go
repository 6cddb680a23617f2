package lehttp

import (
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/log/warnings"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// Router knows the leader of an election, for the handlers made from it: [Router.Proxy] and
// [Router.Redirect]. Make one by [Follow]. Its methods may be called by any number of goroutines at
// once.
//
// A Router uses the newest record that it has seen, even while the store does not answer, until
// that record's term plus MaxClockSkew has run out by its own clock. So it may send requests to a
// process that has just ceased to lead. If that process has RequireLeader, it refuses them.
type Router struct {
	table *route.Table
	stop  func()
}

// Follow returns a Router that watches an election until Close. Use it in any process. In a candidate
// it must outlive the campaign, so that requests that come while the process ends still find the next
// leader: close it when the server has ended (see [Serve]).
//
// Follow returns at once, and fails only if the WatchConfig is wrong. While the store cannot be read,
// or refuses for good, the Router goes on trying, with pauses.
func Follow(w leaderelection.WatchConfig) (*Router, error) {
	f, err := route.Follow(w, nil)
	if err != nil {
		return nil, err
	}
	return &Router{f.Table, f.Close}, nil
}

// Close stops watching, and returns when that has ended. The Router's handlers then use the last record
// until its term has run out.
func (r *Router) Close() { r.stop() }

// Leader returns the newest record known, and whether it names a leader that may lead now. Use it
// to show the leader, or to route by other means. The record's Token is nil.
func (r *Router) Leader() (leaderelection.RaceEntry, bool) {
	s := r.table.Load()
	return *s.Entry.Clone(), s.Led()
}

// A refusal says why a request is not served.
type refusal struct {
	status int
	why    string        // for the client, which may be an outsider
	detail string        // for the log; empty: why
	retry  time.Duration // for Retry-After, if there may be a leader later
	final  bool          // waiting is useless: only another leader can help

	untouched bool // nobody has worked on the request: it may be sent elsewhere
}

func (r *refusal) Error() string {
	if r.detail != "" {
		return "leaderelection: " + r.detail
	}
	return "leaderelection: " + r.why
}

// loopRefusal answers a request that has come back to this process.
func loopRefusal(e *leaderelection.RaceEntry) *refusal {
	return &refusal{
		status: http.StatusLoopDetected, why: "the leader's address leads back here",
		detail: fmt.Sprintf("the leader's address %q leads back here: Config.HostPort must name the leader itself, not what routes to it", e.HostPort),
	}
}

// unled returns why there is no leader to go to, or nil if there is one. self is the LeaderID of
// this process, if it is a candidate.
func unled(s *route.State, self string) *refusal {
	no := func(why, format string, args ...any) *refusal {
		return &refusal{status: http.StatusServiceUnavailable, why: why, detail: fmt.Sprintf(format, args...), retry: s.UntilNext(), untouched: true}
	}
	switch {
	case s.Removed():
		return noSuchShard
	case !s.Known():
		return no("the leader is not known yet", "the election's record has not been read yet")
	case s.Entry.Vacant():
		return no("there is no leader", "there is no leader: the leadership with token %d was given up", s.Entry.ElectionNumber)
	case !s.Led():
		return no("there is no leader", "there is no leader: the term of %q has run out", s.Entry.LeaderID)
	case isHere(s, self):
		return no("this process does not lead", "this process holds the record, but does not lead")
	}
	return nil
}

// isHere reports whether the leader on record is this process.
func isHere(s *route.State, self string) bool {
	return self != "" && s.Led() && s.Entry.LeaderID == self
}

// answer writes the refusal, and its headers over those of w.
func (r *refusal) answer(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if r.status == http.StatusServiceUnavailable || r.retry > 0 {
		h.Set("Retry-After", seconds(r.retry))
	}
	w.WriteHeader(r.status)
	fmt.Fprintln(w, r.why)
}

// seconds returns d for Retry-After: whole seconds, rounded up, and at least one. So a client does
// not come back at once while a leader takes some moments.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}

// complain logs what is wrong with a leadership's record, once for each leadership.
func complain(logger *slog.Logger, s *route.State, why string) {
	if s.First() {
		logger.Warn("leaderelection: "+why, "leader", s.Entry.LeaderID, "token", uint64(s.Entry.ElectionNumber), "hostPort", s.Entry.HostPort)
	}
}

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
	o := route.Or(opts)
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

// Port chooses the leader's HostPorts that have the given port, for ProxyOptions.Addresses and
// RedirectOptions.Addresses. Use it if the record has other addresses than that of HTTP, too.
func Port(port string) func(leader leaderelection.RaceEntry) []string { return route.Port(port) }

// Named chooses the addresses with the given name in the leader's ConnectionParams, for
// ProxyOptions.Addresses and RedirectOptions.Addresses. The ConnectionParams must be JSON, in
// which each name has addresses of host and port:
//
//	{"addresses": {"admin": ["10.0.0.1:9000"], "app": ["10.0.0.1:8080", "[fd00::1]:8080"]}}
//
// Other members of that JSON are ignored. A leader without that name cannot be reached.
func Named(name string) func(leader leaderelection.RaceEntry) []string { return route.Named(name) }
