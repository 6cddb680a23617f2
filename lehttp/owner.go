package lehttp

import (
	"context"
	"net/http"
	"strconv"

	"github.com/c8e606e4/leaderelection/internal/viewctx"
	"github.com/c8e606e4/leaderelection/shard"
)

// Owners says which shards this process owns. A *shard.Member is one.
type Owners interface {
	// Shard returns a shard, and whether this process may act on it at this moment.
	Shard(name string) (*shard.Owned, bool)
}

// ShardKey returns a function that names the numbered shard, of n, of a request's key: a
// customer, say, from its path or a header. See shard.ForKey.
func ShardKey(n int, key func(r *http.Request) string) func(r *http.Request) string {
	return func(r *http.Request) string { return strconv.Itoa(shard.ForKey(key(r), n)) }
}

// OwnerOptions are for [RequireOwner]. The zero value is right for most.
type OwnerOptions struct {
	// Otherwise serves the requests for shards that this process does not own: a
	// ShardRouter's Proxy or Redirect, with its LeaderID set. Nil: they are answered 503.
	Otherwise http.Handler
	// Group names the group, as ProxyOptions.Election does. Name it if requests pass
	// through services of several groups or elections.
	Group string
}

// RequireOwner returns a middleware that serves a request only while this process owns its
// shard, which shardOf names. It is RequireLeader for shards, with the same promise: the
// shard is asked before the handler is called, and again before anything of the answer
// leaves the process. Each refusal is one of that shard's, by which a ShardRouter's Proxy
// knows that nobody has worked on the request.
//
// Once a shard is to be let go no new requests for it are served; those under way may end
// until OnOwned has returned. So have OnOwned wait for them.
//
// The handler finds the shard, and with it its fencing token, by [OwnedFrom]. A request for
// which shardOf returns "" is answered 400.
func RequireOwner(owners Owners, shardOf func(r *http.Request) string, options *OwnerOptions) func(http.Handler) http.Handler {
	g := &ownerGate{owners: owners, shardOf: shardOf}
	if options != nil {
		g.o = *options
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}
}

type ownedKey struct{}

// OwnedFrom returns the shard that a handler behind [RequireOwner] was called for, by its
// request's ctx: its Token is what writes elsewhere are to be fenced by. It is nil in any
// other ctx.
func OwnedFrom(ctx context.Context) *shard.Owned {
	o, _ := ctx.Value(ownedKey{}).(*shard.Owned)
	return o
}

// shardElection is what refusals for a shard are made in the name of: what one shard's
// owner says is of no other shard.
func shardElection(group, name string) string { return group + "/" + name }

// ownerGate is a RequireOwner.
type ownerGate struct {
	owners  Owners
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
	if g.o.Otherwise == nil {
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
	ctx := viewctx.New(context.WithValue(r.Context(), ownedKey{}, o), o)
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
