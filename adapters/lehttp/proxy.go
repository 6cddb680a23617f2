package lehttp

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/log/warnings"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// ProxyOptions are the settings of [Router.Proxy]. The zero value is right for most.
type ProxyOptions struct {
	// Scheme is the scheme of requests to the leader, http or https. Empty means https if TLS
	// or TLSFor is set, and otherwise http.
	Scheme string

	// Addresses returns the addresses for requests to a leader, in the order in which to try
	// them. Set it if candidates serve several things at different ports; see [Port] and
	// [Named]. The addresses must pass CheckAddress, like HostPorts. It is called for each
	// new record. Nil means the leader's HostPorts.
	Addresses func(leader leaderelection.RaceEntry) []string

	// Wait is how long the Proxy may keep a request while there is no leader, or the leader
	// cannot be reached or has just ceased to lead. Zero means a second more than twice the
	// TermLength in the record: 31 s by default. With the other defaults that covers a hand-over
	// (the leader's requests under way may take a term, and candidates and router poll twice a
	// term) and a crash (the leader's term must run out). Negative means that requests do not
	// wait. If CheckAddress allows none of the leader's addresses, requests are answered at once.
	//
	// If a request passes through several Proxies of one election, only the first keeps it:
	// the others, and each RequireLeader, refuse it at once.
	Wait time.Duration

	// KeepBody is the size of the longest request body that the Proxy reads before it sends the
	// request, so that it can send the body a second time. Zero means 64 KiB, negative none.
	// Longer bodies, those of unknown length, and those that the client announces with
	// Expect: 100-continue are streamed, and sent once.
	//
	// On HTTP/1 a client that goes away is noticed only when its body has been read. So a
	// request with a streamed body is not kept there: it is sent as it comes, or refused.
	KeepBody int64

	// LeaderID is this process's own LeaderID if it is a candidate. The Proxy then never sends
	// requests to itself. If this process is elected while requests wait, they are handed
	// back to the RequireLeader whose Otherwise this Proxy is, and served here.
	LeaderID string

	// Election names the election, as RequireOptions.Election does at its candidates. The Proxy
	// believes only a RequireLeader of that name when it says that nobody has worked on a
	// request, so that the request may be sent again.
	Election string

	// CheckAddress returns an error for an address to which no request may be sent. Anybody who
	// can write the election's record directs the requests, with their cookies and
	// credentials. So allow only addresses that your candidates can have, such as an address
	// range. It is called for each address of each new record. Nil means that link-local,
	// multicast and unspecified addresses are refused, those of clouds' metadata services, and
	// addresses of IPv6 by which a gateway may lead there. Loopback addresses are allowed. The
	// Proxy's own Transport then also refuses names that resolve to one of these.
	CheckAddress func(hostPort string) error

	// TLS has the settings for https to leaders: the trusted certificates and, if leaders ask
	// for one, the Proxy's own certificate. Nil means Go's defaults: a leader's certificate
	// must have the host of its address. It is ignored if Transport is set.
	TLS *tls.Config

	// TLSFor returns the TLS settings for one leader. It is called for each new leadership, for
	// which the Proxy then makes separate connections. So you can require that the certificate
	// of each leader has its LeaderID (ServerName). The certificate of a deposed leader is
	// then useless, even at the same address. While TLSFor returns an error, requests are
	// refused. Optional. It is ignored if Transport is set.
	TLSFor func(leader leaderelection.RaceEntry) (*tls.Config, error)

	// Transport sends the requests. Nil means a transport for this Proxy. It does not use HTTP
	// proxies of the environment, keeps up to 128 idle connections to a leader, and takes up
	// to 3 s to connect. It leaves a dead HTTP/2 connection after 20 s. By TCP's own probes
	// it leaves a dead idle connection of HTTP/1 after 30 s.
	Transport http.RoundTripper

	// Rewrite may change the request to the leader, as ReverseProxy.Rewrite does. Optional. It
	// is called after X-Forwarded-For, -Host and -Proto were set, since any client can invent
	// them, and after Fencing-Token was removed (see [fence.Header]), since a client from outside
	// must not raise a fence. If a proxy of yours has sent the request, or all clients are leaders
	// of other elections, copy these headers from In to Out. The scheme and host of the URL are
	// set to the leader's later.
	Rewrite func(*httputil.ProxyRequest)

	// Logger gets leaders with useless addresses, loops, and requests that could not be
	// answered. Nil means slog.Default() from Warn on, as in Config. For silence, set
	// slog.New(slog.DiscardHandler).
	Logger *slog.Logger
}

// patient returns how long a request may wait, by ProxyOptions.Wait or RedirectOptions.Wait and the
// TermLength in the record. If that is 0 it is not known.
func patient(wait, term time.Duration) time.Duration {
	if wait != 0 {
		return wait
	}
	return 2*cmp.Or(term, leaderelection.DefaultTermLength) + time.Second
}

// Proxy is a reverse proxy to the leader, made by [Router.Proxy].
type Proxy struct {
	router  *Router
	o       ProxyOptions
	via     string // the name of this proxy in Via
	forward httputil.ReverseProxy
	own     *http.Transport
	strict  bool // addresses that names resolve to are checked, too
	way     way
	marks   marks
}

// Proxy returns a handler that sends each request to the leader. Use it in front of the candidates,
// or in each candidate as RequireOptions.Otherwise. It is an httputil.ReverseProxy, with its
// streaming, WebSockets and other upgrades, and trailers. Its own answers name nobody; the Logger
// gets the leader's name. It answers:
//
//   - 503 while there is no leader, with Retry-After until the earliest time at which there can
//     be one;
//   - 502 if the leader cannot be reached or breaks off;
//   - 508 if the leader's address leads back to this proxy, which it notices by its own name in
//     Via.
//
// The Proxy uses the first of a leader's addresses that answers. If an address takes no connection,
// or another process is behind it, a request that nobody has worked on goes to the next address.
//
// If a leader is silent for a second after the next leader is known, the Proxy gives it up as hung
// or cut off. That is so whether the leader owes an answer, the rest of an answer, or news on a
// WebSocket.
//
// If leadership changes during a request, the Proxy sends the request once more, on these
// conditions:
//
//   - it is idempotent (GET, HEAD, OPTIONS, TRACE, PUT, DELETE, or any with an Idempotency-Key
//     or X-Idempotency-Key);
//   - its body can be sent again (see KeepBody);
//   - no part of an answer has been passed on.
//
// If nobody has worked on the request yet, since no connection could be made or [RequireLeader] has
// refused it, the Proxy sends it again, whatever its method, until Wait is over.
func (r *Router) Proxy(opts *ProxyOptions) *Proxy {
	p := &Proxy{router: r, o: route.Or(opts), via: "lehttp-" + rand.Text()}
	if p.o.Scheme == "" {
		p.o.Scheme = "http"
		if p.o.TLS != nil || p.o.TLSFor != nil {
			p.o.Scheme = "https"
		}
	}
	p.o.KeepBody = cmp.Or(p.o.KeepBody, 64<<10)
	p.strict = p.o.CheckAddress == nil
	if p.o.Transport == nil {
		p.own = newTransport(p.strict, p.o.TLS)
		p.o.Transport = p.own
	}
	if p.o.CheckAddress == nil {
		p.o.CheckAddress = route.CheckAddress
	}
	p.o.Logger = warnings.Or(p.o.Logger)
	p.marks = marksOf(p.o.Election)
	p.forward = httputil.ReverseProxy{
		Rewrite:      p.rewrite,
		Transport:    (*sender)(p),
		ErrorHandler: p.failed,
		BufferPool:   &buffers{},
		ErrorLog:     slog.NewLogLogger(p.o.Logger.Handler(), slog.LevelWarn),
	}
	return p
}

// Probes by which a dead connection is noticed. They are for a leader that still leads while the
// path to it is gone. A leader that is hung or cut off is left as soon as the next is known (see
// grace).
var (
	tcpProbes = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}
	h2Pings   = http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second}
)

// newTransport returns a transport for leaders, which are few, near, and take every request. If it
// is strict, it does not dial the forbidden addresses to which a name may resolve.
func newTransport(strict bool, config *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: 3 * time.Second, KeepAliveConfig: tcpProbes}
	if strict {
		dialer.Control = route.Control
	}
	pings := h2Pings
	return &http.Transport{
		DialContext:           dialer.DialContext,
		TLSClientConfig:       config.Clone(), // nil is well
		ForceAttemptHTTP2:     true,
		HTTP2:                 &pings,
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   128,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // pass on what the leader and the client agree on
	}
}

// Close closes the idle connections of a Proxy without a Transport of yours. Call it when the Proxy
// is not used any more.
func (p *Proxy) Close() {
	if p.own != nil {
		p.own.CloseIdleConnections()
	}
	p.way.mu.Lock()
	defer p.way.mu.Unlock()
	if p.way.close != nil {
		p.way.close()
	}
}

// ServeHTTP sends the request to the leader.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.seen(r) {
		s := p.router.table.Load()
		complain(p.o.Logger, s, "a request has come back to the proxy that sent it: the leader's HostPort names a proxy")
		loopRefusal(&s.Entry).answer(w)
		return
	}
	p.forward.ServeHTTP(w, r)
}

// seen reports whether the request has been through this proxy before.
func (p *Proxy) seen(r *http.Request) bool {
	for _, v := range r.Header["Via"] {
		if strings.Contains(v, p.via) {
			return true
		}
	}
	return false
}

func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	r.SetXForwarded()
	r.Out.URL.RawQuery = r.In.URL.RawQuery // the leader parses it
	for k := range r.Out.Header {
		// A server that hands headers to programs as variables, as CGI does, takes an underscore for a hyphen.
		if name := strings.ReplaceAll(k, "_", "-"); strings.EqualFold(name, fence.Header) || name != k && slices.ContainsFunc(forwarded, func(f string) bool { return strings.EqualFold(name, f) }) {
			delete(r.Out.Header, k)
		}
	}
	if p.o.Rewrite != nil {
		p.o.Rewrite(r)
	}
	r.Out.Header["Via"] = append(r.Out.Header["Via"], strings.TrimPrefix(r.In.Proto, "HTTP/")+" "+p.via)
}

// forwarded are the headers by which a proxy says where a request comes from.
var forwarded = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// failed answers a request that could not be sent, or got no answer.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	var home *comeHome
	if errors.As(err, &home) {
		home.serve(w, home.body.home())
		return
	}
	var no *refusal
	switch {
	case errors.As(err, &no):
	case errors.Is(err, errDeposed):
		no = &refusal{status: http.StatusBadGateway, why: "leadership has changed hands under the request, which may have taken effect"}
	case r.Context().Err() != nil && errors.Is(r.Context().Err(), context.Canceled):
		no = &refusal{status: http.StatusBadGateway, why: "the client has gone"} // nobody reads this
	case errors.Is(err, context.DeadlineExceeded):
		no = &refusal{status: http.StatusGatewayTimeout, why: "the leader did not answer in time"}
	default:
		no = &refusal{status: http.StatusBadGateway, why: "the leader broke off"}
	}
	if r.Context().Err() == nil {
		p.o.Logger.Warn("leaderelection: a request was not answered by a leader", "method", r.Method, "path", r.URL.Path, "status", no.status, "err", err)
	}
	if no.untouched && r.Header.Get(sentBy) == p.marks.sent {
		// Another Proxy of this election has sent it, and may send it again.
		asked := *no
		asked.status, no = http.StatusServiceUnavailable, &asked
		w.Header().Set(notLeading, p.marks.refused)
	}
	no.answer(w)
}

// buffers is the pool of buffers for copying bodies.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
