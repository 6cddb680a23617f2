package sidecar

import (
	"container/list"
	"context"
	"crypto/subtle"
	"errors"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/shard"
)

// How long a connection may do nothing.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 10 * time.Second
	idleTimeout   = 30 * time.Second
	writeTimeout  = 10 * time.Second // of an answer, or of one event
)

// maxBody is the most that is read of a form.
const maxBody = 64 << 10

// Server serves handler to at most most connections at once, so that whoever opens
// connections takes none of the file descriptors that the lease needs. It serves what
// Limit returns.
func Server(handler http.Handler, l *Limited, log *log.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		WriteTimeout:      writeTimeout, // what waits for news moves it on
		MaxHeaderBytes:    64 << 10,
		ConnState:         l.state,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connection{}, c) },
		ErrorLog:          log,
	}
}

// places are what clients take from each other. Programs on this machine, and all others together, leave an eighth to
// each other, and an address elsewhere has half at most.
type places struct {
	most       int
	here, away int                  // how many are taken
	of         map[netip.Prefix]int // of those away, by address
}

func newPlaces(most int) *places { return &places{most: most, of: make(map[netip.Prefix]int)} }

// room reports whether there is a place for from.
func (p *places) room(from netip.Prefix) bool {
	least := p.most - p.most/8
	if p.here+p.away >= p.most {
		return false
	}
	if from.Addr().IsLoopback() {
		return p.here < least
	}
	return p.away < least && p.of[from] < max(1, p.most/2)
}

// take takes a place for from, or with -1 gives one back.
func (p *places) take(from netip.Prefix, n int) {
	if from.Addr().IsLoopback() {
		p.here += n
		return
	}
	p.away += n
	if p.of[from] += n; p.of[from] == 0 {
		delete(p.of, from)
	}
}

// origin is who has a remote address: a network, with IPv6, since each of its computers has all its addresses.
// It is not valid if the address is none.
func origin(address string) netip.Prefix {
	from, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := from.Addr().Unmap().WithZone(""), 32
	if addr.Is6() && !addr.IsLoopback() {
		bits = 64
	} else if addr.Is6() {
		bits = 128
	}
	prefix, _ := addr.Prefix(bits) // never too long
	return prefix
}

// Limited is a listener with a limit of connections. One too many takes the place of another: of the one that has
// waited for a request, or for its answer to be read, for longest. So a probe always finds a place. Only those
// that wait for news keep theirs.
type Limited struct {
	net.Listener

	mu     sync.Mutex
	places *places
	loose  *list.List // of *limitedConn that may be closed for another; the one that became so first is at the front
}

// Limit returns l with a limit.
func Limit(l net.Listener, most int) *Limited {
	return &Limited{Listener: l, places: newPlaces(most), loose: list.New()}
}

type limitedConn struct {
	net.Conn
	l      *Limited
	from   netip.Prefix
	loose  *list.Element // nil: it is kept
	closed bool
}

// connection is the key of a request's *limitedConn.
type connection struct{}

// keep keeps the connection of a request from being closed for another, until done is called.
func keep(ctx context.Context) (done func()) {
	c, ours := ctx.Value(connection{}).(*limitedConn)
	if !ours {
		return func() {}
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.fix(c)
	return func() {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		c.l.loosen(c)
	}
}

// Accept implements net.Listener.
func (l *Limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if limited := l.admit(c); limited != nil {
			return limited, nil
		}
		_ = c.Close()
	}
}

// admit counts c, in the place of another if need be. It returns nil if there is none.
func (l *Limited) admit(c net.Conn) *limitedConn {
	limited := &limitedConn{Conn: c, l: l, from: origin(c.RemoteAddr().String())}
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.loose.Front(); !l.places.room(limited.from); {
		if e == nil {
			return nil
		}
		victim := e.Value.(*limitedConn)
		e = e.Next()
		l.places.take(victim.from, -1)
		if l.places.room(limited.from) {
			victim.closed = true
			l.fix(victim)
			_ = victim.Conn.Close()
			break
		}
		l.places.take(victim.from, +1)
	}
	l.places.take(limited.from, +1)
	l.loosen(limited)
	return limited
}

// fix takes c from those that may be closed for another. The caller holds mu.
func (l *Limited) fix(c *limitedConn) {
	if c.loose != nil {
		l.loose.Remove(c.loose)
		c.loose = nil
	}
}

// loosen makes c the last to be closed for another. The caller holds mu.
func (l *Limited) loosen(c *limitedConn) {
	l.fix(c)
	if !c.closed {
		c.loose = l.loose.PushBack(c)
	}
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.l.mu.Lock()
	if !c.closed {
		c.closed = true
		c.l.places.take(c.from, -1)
		c.l.fix(c)
	}
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// state is an http.Server's ConnState: a connection whose request is answered was used just now.
func (l *Limited) state(conn net.Conn, s http.ConnState) {
	if c, ours := conn.(*limitedConn); ours && s == http.StateIdle {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.loosen(c)
	}
}

// common is what all requests have. A browser takes no answer for what it does not say it is. And none waits for a body
// that nobody reads: a request that has a body is the last of its connection, and only guarded reads it.
func common(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.ContentLength == 0 {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		unread := func() { _ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) }
		unread()
		defer unread()
		if r.Method != http.MethodPost {
			answer(w, http.StatusBadRequest, fault("only a POST has a body"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// guarded lets in who may ask for a hand-over.
func (s *server) guarded(do func(context.Context, *http.Request) error) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if why := s.refusal(r); why != "" {
			answer(w, http.StatusForbidden, fault(why))
			return
		}
		if done, ok := s.place(r); ok {
			defer done()
		}
		if r.ContentLength != 0 {
			c := http.NewResponseController(w)
			_ = c.SetReadDeadline(time.Now().Add(bodyTimeout))
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			_ = r.ParseMultipartForm(maxBody) // what is no form has no values
			_ = c.SetReadDeadline(time.Time{})
		}
		ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
		defer cancel()
		switch err := do(ctx, r); {
		case err == nil:
			answer(w, http.StatusAccepted, s.now())
		case errors.Is(err, errNoID):
			answer(w, http.StatusBadRequest, fault(err.Error()))
		case errors.Is(err, leaderelection.ErrNoLeader), errors.Is(err, leaderelection.ErrRefused), errors.Is(err, leaderelection.ErrLostRace), errors.Is(err, errUnknown), errors.Is(err, errNoMember), errors.Is(err, shard.ErrNoGroup), errors.Is(err, shard.ErrNoShard):
			answer(w, http.StatusConflict, fault(s.fit(err)))
		default:
			answer(w, http.StatusBadGateway, fault(s.fit(err)))
		}
	})
	// Else any page that a browser of this machine shows could ask.
	return http.NewCrossOriginProtection().Handler(h)
}

// fit is an error as strangers may read it.
func (s *server) fit(err error) string {
	if s.Fit == nil {
		return err.Error()
	}
	return s.Fit(err.Error())
}

// refusal says why r may not ask for a hand-over; empty: it may. With a secret, that
// alone counts: what comes from this machine may have come through a proxy here.
// Without one, it must come from this machine, and by one of its own names: another
// was made to point here.
func (s *server) refusal(r *http.Request) string {
	if s.ReadOnly {
		return "this sidecar is read-only"
	}
	if s.Secret != nil {
		secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if want, err := s.Secret(); err != nil {
			return "the secret of --secret-file cannot be read"
		} else if !ok || subtle.ConstantTimeCompare([]byte(secret), []byte(want)) != 1 {
			return "only with the secret of --secret-file, as Authorization: Bearer"
		}
		return ""
	}
	const local = "only from this machine and not through a proxy, or, if the sidecar is given a --secret-file, with its secret as Authorization: Bearer"
	if !asker(r).Addr().IsLoopback() || !loopback(r.Host) {
		return local
	}
	return ""
}

// asker is who asks, as origin says it. What a proxy of this machine has passed on, from wherever, is nobody's.
func asker(r *http.Request) netip.Prefix {
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-") || strings.HasSuffix(name, "-Ip") {
			return netip.Prefix{}
		}
	}
	return origin(r.RemoteAddr)
}

// hosts answers only what is asked by a name that this sidecar may go by. Else a page
// of anybody's could read it in the browser of somebody who can reach it, by a name of
// that one's own that it makes point here (DNS rebinding).
func (s *server) hosts(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := hostOf(r.Host); !private(host) && !slices.Contains(s.Hosts, host) && !slices.Contains(s.Hosts, "*") {
			answer(w, http.StatusMisdirectedRequest, fault("this sidecar does not go by the name in the request's Host: allow it by --allow-host"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// private reports whether nobody else can make a name point here: it is an address, a
// name without a dot, or one that only this machine or cluster gives.
func private(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") {
		return true
	}
	for _, suffix := range []string{".localhost", ".svc", ".svc.cluster.local"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}

func loopback(host string) bool {
	host = hostOf(host)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// hostOf is the name in a Host header.
func hostOf(header string) string {
	if h, _, err := net.SplitHostPort(header); err == nil {
		header = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(header, "[]"), "."))
}
