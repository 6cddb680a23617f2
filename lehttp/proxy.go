package lehttp

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// ProxyOptions are for [Router.Proxy]. The zero value is right for most.
type ProxyOptions struct {
	// Scheme is how the leader is spoken to, http or https. Empty: https with TLS or
	// TLSFor, else http.
	Scheme string

	// Addresses chooses where requests for a leader go, in the order in which they are
	// to be tried: for candidates that serve several things, at ports of their own. See
	// [Port] and [Named]. What it returns must pass CheckAddress as HostPorts must. It is
	// asked for each new record. Nil: the leader's HostPorts.
	Addresses func(leader leaderelection.RaceEntry) []string

	// Wait is how long a request may be kept while there is no leader, or the
	// leader cannot be reached or has just ceased to lead. Zero: 2 s, ample for
	// a hand-over on a store that pushes; with one that is polled it takes up
	// to the candidates' PollInterval. Negative: not at all. Where none of the
	// leader's addresses is one to be dialled, requests are answered at once.
	Wait time.Duration

	// KeepBody is up to how many bytes of a request's body are kept so that it
	// can be sent a second time. Zero: 64 KiB. Negative: none. Longer bodies,
	// those of unknown length, and those that the client announces with
	// Expect: 100-continue are streamed, and sent once.
	KeepBody int64

	// LeaderID is this process's own where it is a candidate: requests are then
	// never sent to itself. Those that wait when it is elected are handed back to
	// the RequireLeader whose Otherwise this Proxy is, and served here.
	LeaderID string

	// Election names the election, as RequireOptions.Election does at its
	// candidates: the Proxy sends a request again only where a RequireLeader of
	// that name says that nobody has worked on it.
	Election string

	// CheckAddress returns an error for an address that no request may be sent to.
	// Whoever can write the election's record directs the requests, with their
	// cookies and credentials: so allow what your candidates can have, as an
	// address range of theirs. It is asked for each HostPort of each leader, as the
	// record has it. Nil: link-local, multicast and unspecified addresses are
	// refused, and, by the Proxy's own Transport, names that resolve to one.
	CheckAddress func(hostPort string) error

	// TrustForwarded reports whether the Forwarded and X-Forwarded-* headers of a
	// request are to be believed, because a proxy of your own has sent it: then
	// X-Forwarded-For is added to, and the others are kept. Nil: they are whatever
	// a client has made up, and replaced.
	TrustForwarded func(r *http.Request) bool

	// TLS is how leaders are spoken to by https: the certificates that are trusted
	// and, where leaders ask for one, the Proxy's own. Nil: Go's defaults, by which a
	// leader's certificate must have the host of its address. Without meaning if
	// Transport is set.
	TLS *tls.Config

	// TLSFor is TLS for each leader by itself: called for each new leadership, which
	// then has connections of its own. So the certificate of each can be asked to have
	// its LeaderID (ServerName), and that of one that was deposed is worth nothing, also
	// at the same address. While it returns an error, requests are refused. Optional;
	// without meaning if Transport is set.
	TLSFor func(leader leaderelection.RaceEntry) (*tls.Config, error)

	// Transport sends the requests. Nil: one made for this Proxy, without the
	// environment's HTTP proxies, with up to 128 idle connections to a leader
	// and 3 s to connect. It leaves an HTTP/2 connection that is dead after 20 s, and by
	// TCP's own probes an idle one of HTTP/1 after 30 s.
	Transport http.RoundTripper

	// Rewrite may change what is sent, as ReverseProxy.Rewrite does: it is
	// called after X-Forwarded-For, -Host and -Proto were set, and after
	// Fencing-Token was removed (see [fence.Header]): a client from outside must
	// not raise a fence. Where only leaders of other elections can be clients,
	// copy it from In to Out. The URL's scheme and host are set later, to the
	// leader's. Optional.
	Rewrite func(*httputil.ProxyRequest)

	// Logger is told of a leader whose addresses are useless, of loops, and of
	// requests that could not be answered. Nil: silence.
	Logger *slog.Logger
}

const defaultWait = 2 * time.Second

// Proxy is a reverse proxy to whoever leads. See [Router.Proxy].
type Proxy struct {
	router  *Router
	o       ProxyOptions
	via     string // what this proxy calls itself in Via
	forward httputil.ReverseProxy
	own     *http.Transport
	strict  bool // addresses that names resolve to are checked, too
	way     way
	marks   marks
}

// Proxy returns a handler that sends each request to the leader: an
// httputil.ReverseProxy, with its streaming both ways, its WebSockets and other
// upgrades, and its trailers.
//
// While there is no leader it answers 503, with Retry-After until the earliest
// time at which there can be one; where the leader cannot be reached or breaks
// off, 502; where the leader's address leads back to this proxy, 508, by a name
// of its own that it adds to Via. Answers of its own name nobody: who leads is for
// the Logger.
//
// Of a leader's addresses the first that answers is used. A request that nobody has
// worked on goes on to the next of them, where one takes no connection or another
// process is behind it.
//
// A leader that is silent for a second after the next one is known is given up, as
// hung or cut off, whether it owes an answer, the rest of one, or news on a WebSocket.
//
// A request is sent a second time, once, where leadership changes hands under
// it: if it is idempotent (GET, HEAD, OPTIONS, TRACE, PUT, DELETE, or any with an
// Idempotency-Key), its body can be sent again (see KeepBody), and no part of an
// answer has been passed on. One that nobody has worked on yet, since no
// connection could be made or [RequireLeader] refused it, is sent again whatever
// its method, until Wait is over.
func (r *Router) Proxy(options *ProxyOptions) *Proxy {
	p := &Proxy{router: r, via: "lehttp-" + rand.Text()}
	if options != nil {
		p.o = *options
	}
	if p.o.Scheme == "" {
		p.o.Scheme = "http"
		if p.o.TLS != nil || p.o.TLSFor != nil {
			p.o.Scheme = "https"
		}
	}
	if p.o.Wait == 0 {
		p.o.Wait = defaultWait
	}
	if p.o.KeepBody == 0 {
		p.o.KeepBody = 64 << 10
	}
	p.strict = p.o.CheckAddress == nil
	if p.o.Transport == nil {
		p.own = newTransport(p.strict, p.o.TLS)
		p.o.Transport = p.own
	}
	if p.o.CheckAddress == nil {
		p.o.CheckAddress = route.CheckAddress
	}
	p.marks = marksOf(p.o.Election)
	p.forward = httputil.ReverseProxy{
		Rewrite:      p.rewrite,
		Transport:    (*sender)(p),
		ErrorHandler: p.failed,
		BufferPool:   &buffers{},
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	if p.o.Logger != nil {
		p.forward.ErrorLog = slog.NewLogLogger(p.o.Logger.Handler(), slog.LevelWarn)
	}
	return p
}

// What a connection that is dead is noticed by. A leader that is hung or cut off is left
// as soon as the next one is known (see grace); this is for a leader that still leads, and a
// path to it that is gone.
var (
	tcpProbes = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}
	h2Pings   = http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second}
)

// newTransport is for leaders, which are few, near, and take every request. A strict
// one does not dial what a name must not resolve to.
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

// Close closes the idle connections of a Proxy that was given no Transport.
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
		p.router.complain(p.o.Logger, s, "a request has come back to the proxy that sent it: the leader's HostPort names a proxy")
		loopRefusal(&s.Entry).answer(w)
		return
	}
	if r.ContentLength < 0 && r.ProtoMajor == 1 {
		// A stream: pass on what the leader says to it before its end. Where w
		// cannot, that waits for the end.
		_ = http.NewResponseController(w).EnableFullDuplex()
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
	if p.o.TrustForwarded != nil && p.o.TrustForwarded(r.In) {
		keepForwarded(r)
	} else {
		r.SetXForwarded()
	}
	r.Out.URL.RawQuery = r.In.URL.RawQuery // what it means is the leader's to say
	r.Out.Header.Del(fence.Header)
	if p.o.Rewrite != nil {
		p.o.Rewrite(r)
	}
	r.Out.Header["Via"] = append(r.Out.Header["Via"], protocol(r.In)+p.via)
}

// keepForwarded adds this hop to what the proxies before it have said of the client.
func keepForwarded(r *httputil.ProxyRequest) {
	r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	r.SetXForwarded()
	for _, k := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v := r.In.Header[k]; len(v) > 0 {
			r.Out.Header[k] = v
		}
	}
}

// protocol is the received protocol as Via wants it: without the name where that
// is HTTP.
func protocol(r *http.Request) string {
	switch {
	case r.ProtoMajor == 1 && r.ProtoMinor == 1:
		return "1.1 "
	case r.ProtoMajor == 1:
		return "1.0 "
	case r.ProtoMajor == 2:
		return "2.0 "
	}
	return "3.0 "
}

// failed answers what could not be sent, or got no answer.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	var home *comeHome
	if errors.As(err, &home) {
		home.serve(w, r)
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
	if p.o.Logger != nil && r.Context().Err() == nil {
		p.o.Logger.Warn("leaderelection: a request was not answered by a leader", "method", r.Method, "path", r.URL.Path, "status", no.status, "err", err)
	}
	no.answer(w)
}

// buffers are those that bodies are copied through.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
