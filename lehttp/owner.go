package lehttp

import (
	"context"
	"net/http"

	"github.com/c8e606e4/leaderelection/internal/viewctx"
	"github.com/c8e606e4/leaderelection/shard"
)

// ShardKey returns a function that names the shard of a request, one of n numbered shards, by the
// request's key. A key is, for example, a customer in the path or in a header. See shard.KeyName:
// while the group has another number of shards, its requests are refused. If the number may
// change while the group runs, call shard.KeyName with the Of of ShardRouter.Assignment instead. It
// is 0 until an assignment is known.
func ShardKey(n int, key func(r *http.Request) string) func(r *http.Request) string {
	return func(r *http.Request) string { return shard.KeyName(key(r), n) }
}

// OwnerOptions are the settings of [RequireOwner]. The zero value is right for most.
type OwnerOptions struct {
	// Otherwise serves the requests for shards that this process does not own: a
	// ShardRouter's Proxy or Redirect, with its LeaderID set. Nil means the answer 503.
	// Such a request is also answered 503 if a Proxy of this group has sent it: that Proxy
	// keeps it itself.
	Otherwise http.Handler
	// Group names the group, as ProxyOptions.Election does. Set it if requests pass through
	// services of several groups or elections.
	Group string
}

// RequireOwner returns a middleware that serves a request only while this process owns the shard
// that shardOf names. Put it in front of the handlers of a member. It makes the promise of
// [RequireLeader], for shards: it asks the shard before the handler is called, and again before
// any part of the answer leaves the process. Each refusal is for that shard. By it a
// ShardRouter's Proxy knows that nobody has worked on the request.
//
// When a shard must be let go, RequireOwner serves no new requests for it. The requests under way
// may end until OnOwned has returned, so let OnOwned wait for them.
//
// The handler gets the shard, and its fencing token, by [shard.OwnedFrom]. A request for which
// shardOf returns "" is answered 400.
func RequireOwner(owners shard.Owners, shardOf func(r *http.Request) string, opts *OwnerOptions) func(http.Handler) http.Handler {
	g := &ownerGate{owners: owners, shardOf: shardOf}
	if opts != nil {
		g.o = *opts
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}
}

// shardElection returns the name of the election of refusals for a shard. Each shard has its own,
// since a refusal for one says nothing about another.
func shardElection(group, name string) string { return group + "/" + name }

// ownerGate is a RequireOwner.
type ownerGate struct {
	owners  shard.Owners
	shardOf func(*http.Request) string
	o       OwnerOptions
}

const ceasedToOwn = "this process has ceased to own the shard while it worked on the request, which may have taken effect"

// noShard answers a request that names no shard.
var noShard = &refusal{status: http.StatusBadRequest, why: "the request names no shard"}

func notOwned() *refusal {
	return &refusal{status: http.StatusServiceUnavailable, why: "this process does not own the shard"}
}

func (g *ownerGate) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	name := g.shardOf(r)
	if name == "" {
		noShard.answer(w)
		return
	}
	if o := g.owned(name); o != nil {
		g.own(w, r, next, o, name)
		return
	}
	if g.o.Otherwise == nil || r.Header.Get(sentBy) == g.marks(name).sent {
		g.refuse(w, name)
		return
	}
	h := &home{host: g, next: next, r: r}
	g.o.Otherwise.ServeHTTP(&relayed{w, g.marks(name).refused}, r.WithContext(context.WithValue(r.Context(), homeKey{}, h)))
}

// owned returns a shard for which a new request may be served, or nil.
func (g *ownerGate) owned(name string) *shard.Owned {
	if o, may := g.owners.Shard(name); may && o.Context().Err() == nil {
		return o
	}
	return nil
}

func (g *ownerGate) marks(name string) marks { return marksOf(shardElection(g.o.Group, name)) }

// refuse answers a request that nobody works on.
func (g *ownerGate) refuse(w http.ResponseWriter, name string) {
	w.Header().Set(notLeading, g.marks(name).refused)
	notOwned().answer(w)
}

// own lets next serve a request while o is owned.
func (g *ownerGate) own(w http.ResponseWriter, r *http.Request, next http.Handler, o *shard.Owned, name string) {
	m := g.marks(name)
	a := newAnswer(w, &leadership{view: o, marks: &m, refusal: notOwned, ceased: ceasedToOwn})
	if h := w.Header(); len(h) > 0 {
		a.work.before = h.Clone()
	}
	delete(r.Header, sentBy) // as in gate.lead
	ctx := viewctx.New(shard.WithOwned(r.Context(), o), o)
	defer ctx.Stop()
	next.ServeHTTP(a, r.WithContext(ctx))
	a.finish()
}

func (g *ownerGate) election(r *http.Request) string { return shardElection(g.o.Group, g.shardOf(r)) }

func (g *ownerGate) mayServe(r *http.Request) bool { return g.owned(g.shardOf(r)) != nil }

func (g *ownerGate) serveHere(w http.ResponseWriter, r *http.Request, next http.Handler) {
	name := g.shardOf(r)
	if o := g.owned(name); o != nil {
		g.own(w, r, next, o, name)
		return
	}
	g.refuse(w, name)
}
