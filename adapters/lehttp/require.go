package lehttp

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/route"
	"github.com/c8e606e4/leaderelection/internal/route/viewctx"
	"github.com/c8e606e4/leaderelection/internal/route/viewhook"
	"github.com/c8e606e4/leaderelection/shard"
)

// notLeading is the header by which RequireLeader tells a Proxy what became of a request.
const notLeading = "Leaderelection-Not-Leading"

// sentBy is the header by which a Proxy says that it keeps the request itself. The receiver serves
// such a request or refuses it at once. If a client sets the header, that client is only refused
// sooner than others.
const sentBy = "Leaderelection-Sent-By"

// marks are the values of these headers, for one election.
type marks struct {
	election string // as ProxyOptions.Election names it

	refused string // the handler was not called
	lost    string // it was called; its answer was thrown away
	sent    string // by a Proxy
}

func marksOf(election string) marks {
	of := ""
	if election != "" {
		of = "; election=" + url.PathEscape(election)
	}
	return marks{election: election, refused: "refused" + of, lost: "lost" + of, sent: "proxy" + of}
}

// RequireOptions are the settings of [RequireLeader] and [RequireOwner]. The zero value is right for
// most.
type RequireOptions struct {
	// Otherwise serves the requests that come while this process does not lead, or for shards
	// that it does not own: a Router's or a ShardRouter's Proxy or Redirect, with its LeaderID
	// set. Nil means the answer 503. Such a request is also answered 503 if a Proxy of this
	// election has sent it: that Proxy keeps it itself.
	Otherwise http.Handler
	// Election names the election, or the group, as ProxyOptions.Election does: a Proxy believes
	// only the refusals of its own election. Set it if requests pass through services of several
	// elections or groups.
	Election string
}

// RequireLeader returns a middleware that serves requests only while this process leads. Put it in
// front of the handlers of a candidate.
//
// It asks the view before the handler is called, and again before any part of the answer leaves the
// process. If the view has ended meanwhile, it throws the answer away and answers 503, even if
// another leadership of this process has begun. The handler's work may have happened, but a
// process that does not lead answers nobody. If a part of the answer has left already, the rest
// is broken off, so that the client does not take it for complete.
//
// Once leadership is being given up, RequireLeader admits no new requests. It keeps the lease until
// the requests that it has admitted have returned, for at most Config.DrainTimeout: they finish under
// the leadership in which they began, and their answers leave. So a handler needs no lock that
// OnOusting waits for. It must not wait for the end of its own leadership, such as by Campaign.Resign.
//
// The request's ctx goes on while leadership is being given up, so that the handler can finish. It ends
// with the view, at most a second later, with the cause leaderelection.ErrNotLeading.
//
// A stream has no end of its own, and must not hold up the next leader. So the ctx of a stream ends
// with that cause at most a second after leadership began to be given up, and a hijacked connection is
// closed then. Streams are hijacked connections, such as WebSockets, and answers to a safe method of
// which the handler has flushed a part, such as events. The lease is kept for a stream, too, until its
// handler has returned.
//
// The handler gets the view of the leadership under which its request was admitted, by
// [leaderelection.ViewFrom] and the request's ctx. Take the fencing token from that view, not from
// Campaign.View, which may belong to another leadership when the handler has returned.
//
// RequireLeader does not make the handler's writes to other resources safe. That takes fencing, see
// package fence.
func RequireLeader(c leaderelection.Candidate, opts *RequireOptions) func(http.Handler) http.Handler {
	l := &leaders{candidate: c, o: route.Or(opts)}
	l.marks = marksOf(l.o.Election)
	return gate(l.admit).middleware(l.o.Otherwise)
}

// gate is a RequireLeader or a RequireOwner. It returns what a request is served or refused under,
// and whether it may be served now. Nil means that the request names no shard.
type gate func(r *http.Request) (l *leadership, may bool)

// leadership has what the answers of one leadership share.
type leadership struct {
	view    viewctx.View
	marks   *marks
	refusal func() *refusal
	ceased  string       // told to a client whose answer was thrown away
	lasts   func() bool  // it is not being given up
	owned   *shard.Owned // nil with RequireLeader
}

// enter notes that a request is admitted. It returns false if the leadership is being given up.
func (l *leadership) enter() bool {
	if l.owned != nil {
		return viewhook.EnterShard(l.owned)
	}
	return viewhook.Enter(l.view)
}

// leave notes that an admitted request has returned.
func (l *leadership) leave() {
	if l.owned != nil {
		viewhook.LeaveShard(l.owned)
	} else {
		viewhook.Leave(l.view)
	}
}

// admission is a request that was admitted. As a View it is for the request's ctx, which ends with the
// leadership's view or, if the answer is a stream, when the leadership is being given up.
type admission struct {
	l      *leadership
	safe   bool // the request's method is
	stream atomic.Bool
}

func (a *admission) ValueInFuture() bool {
	return (!a.stream.Load() || a.l.lasts()) && a.l.view.ValueInFuture()
}

func (a *admission) Get() time.Time { return a.l.view.Get() }

func (a *admission) Clock() clocks.Clock { return a.l.view.Clock() }

func (g gate) middleware(otherwise http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next, otherwise) })
	}
}

func (g gate) serve(w http.ResponseWriter, r *http.Request, next, otherwise http.Handler) {
	l, may := g(r)
	switch {
	case l == nil:
		noShard.answer(w)
	case may && l.enter():
		l.serve(w, r, next)
	case otherwise == nil || r.Header.Get(sentBy) == l.marks.sent: // nobody works on it
		w.Header().Set(notLeading, l.marks.refused)
		l.refusal().answer(w)
	default:
		h := &home{gate: g, election: l.marks.election, next: next, r: r}
		otherwise.ServeHTTP(&relayed{w, l.marks.refused}, r.WithContext(context.WithValue(r.Context(), homeKey{}, h)))
	}
}

// serve lets next serve a request that has entered.
func (l *leadership) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	defer l.leave() // last of all, even if the handler panics: the answer leaves under the view
	a := &answer{w: w}
	a.in.l, a.in.safe = l, safe(r)
	if h := w.Header(); len(h) > 0 {
		a.before = h.Clone()
	}
	delete(r.Header, sentBy) // it is for this process, not for a server to which the handler passes the request
	parent := r.Context()
	if l.owned != nil {
		parent = shard.WithOwned(parent, l.owned)
	} else if view, ok := l.view.(*leaderelection.TimeView); ok {
		parent = leaderelection.WithView(parent, view)
	}
	ctx := viewctx.New(parent, &a.in)
	defer ctx.Stop()
	next.ServeHTTP(a, r.WithContext(ctx))
	a.finish()
}

// leaders are the leaderships of one candidate.
type leaders struct {
	candidate leaderelection.Candidate
	o         RequireOptions
	marks
	last atomic.Pointer[leadership]
}

// admit is the gate of RequireLeader.
func (l *leaders) admit(*http.Request) (*leadership, bool) {
	view := l.candidate.View()
	last := l.last.Load()
	if last == nil || last.view != view {
		last = &leadership{view: view, marks: &l.marks, refusal: l.refusal,
			lasts:  func() bool { return l.candidate.Status() == leaderelection.Leading && l.candidate.View() == view },
			ceased: "this process has ceased to lead while it worked on the request, which may have taken effect"}
		l.last.Store(last)
	}
	if l.candidate.Status() != leaderelection.Leading {
		return last, false
	}
	return last, view.ValueInFuture() // Status may be Leading before View is of that leadership
}

// safe reports whether a request has no effect but its answer (RFC 9110, 9.2.1).
func safe(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// refusal returns why a request is not served.
func (l *leaders) refusal() *refusal {
	no := &refusal{status: http.StatusServiceUnavailable, why: "this process does not lead"}
	e, view := l.candidate.Leader(), l.candidate.View()
	if e.Vacant() || view.ElectionNumber() != e.ElectionNumber {
		return no // another leads, or may at once
	}
	// This process's own leadership, which is over or is ending.
	no.retry = e.TermExpiry.Add(leaderelection.DefaultMaxClockSkew).Sub(view.Clock().Now().Round(0))
	return no
}

// ShardKey returns a function that names the shard of a request, one of n numbered shards, by the
// request's key. A key is, for example, a customer in the path or in a header. See shard.KeyName:
// while the group has another number of shards, its requests are refused. If the number may
// change while the group runs, call shard.KeyName with the Of of ShardRouter.Assignment instead. It
// is 0 until an assignment is known.
func ShardKey(n int, key func(r *http.Request) string) func(r *http.Request) string {
	return func(r *http.Request) string { return shard.KeyName(key(r), n) }
}

// RequireOwner returns a middleware that serves a request only while this process owns the shard
// that shardOf names. Put it in front of the handlers of a member. It makes the promise of
// [RequireLeader], for shards: it asks the shard before the handler is called, and again before
// any part of the answer leaves the process. Each refusal is for that shard. By it a
// ShardRouter's Proxy knows that nobody has worked on the request.
//
// When a shard must be let go, RequireOwner admits no new requests for it. The shard is kept until the
// requests that were admitted, and OnOwned, have returned, for at most DrainTimeout.
//
// The handler gets the shard, and its fencing token, by [shard.OwnedFrom]. A request for which
// shardOf returns "" is answered 400.
func RequireOwner(owners shard.Owners, shardOf func(r *http.Request) string, opts *RequireOptions) func(http.Handler) http.Handler {
	o := route.Or(opts)
	return gate(func(r *http.Request) (*leadership, bool) {
		name := shardOf(r)
		if name == "" {
			return nil, false
		}
		m := marksOf(route.ShardElection(o.Election, name))
		l := &leadership{marks: &m, refusal: notOwned,
			ceased: "this process has ceased to own the shard while it worked on the request, which may have taken effect"}
		s, may := owners.Shard(name)
		if may = may && s.Context().Err() == nil; may {
			l.view, l.owned, l.lasts = s, s, func() bool { return s.Context().Err() == nil }
		}
		return l, may
	}).middleware(o.Otherwise)
}

// noShard answers a request that names no shard.
var noShard = &refusal{status: http.StatusBadRequest, why: "the request names no shard"}

func notOwned() *refusal {
	return &refusal{status: http.StatusServiceUnavailable, why: "this process does not own the shard"}
}

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
type comeHome struct {
	*home
	body *kept
}

func (c *comeHome) Error() string { return "leaderelection: this process leads now" }

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

// relayed is the ResponseWriter of Otherwise. It removes the mark that nobody has worked on the
// request: Otherwise may have relayed it from a service behind another election. (It keeps the
// mark of a lost answer, which a Proxy as Otherwise hands on.)
type relayed struct {
	http.ResponseWriter
	refused string
}

func (w *relayed) WriteHeader(code int) {
	if h := w.Header(); h.Get(notLeading) == w.refused {
		h.Del(notLeading)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *relayed) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush and Hijack are for handlers that ask for these interfaces.
func (w *relayed) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *relayed) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}
