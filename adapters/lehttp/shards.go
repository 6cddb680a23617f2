package lehttp

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/internal/route"
	"github.com/c8e606e4/leaderelection/shard"
)

// ShardRouter knows the owner of each shard of a group, for the handlers made from it. Make one by
// [FollowShards]. Its methods may be called by any number of goroutines at once.
//
// A ShardRouter uses the newest assignment that it has seen, even while the store does not answer.
// So it may send a request to a process that has just ceased to own the shard. If that process
// has [RequireOwner], it refuses the request, which is then kept until the next owner is known.
type ShardRouter struct {
	shards *route.Shards
	stop   func()
}

// FollowShards returns a ShardRouter that watches a group until Close. Use it in any process. In a
// member it must outlive the membership: see [Follow]. It returns at once, and fails only if the
// WatchConfig is wrong.
func FollowShards(w shard.WatchConfig) (*ShardRouter, error) {
	shards, stop, err := route.FollowShards(w)
	if err != nil {
		return nil, err
	}
	return &ShardRouter{shards, stop}, nil
}

// Close stops watching, and returns when that has ended. The ShardRouter's handlers then use the last
// assignment.
func (r *ShardRouter) Close() { r.stop() }

// Assignment returns the newest assignment known, or nil. Use it to show the owners, or to route by
// other means.
func (r *ShardRouter) Assignment() *shard.Assignment { return r.shards.Newest() }

// router returns the Router of one shard. It waits until an assignment is known, for at most wait.
func (r *ShardRouter) router(ctx context.Context, name string, wait time.Duration) (*Router, *refusal) {
	if name == "" {
		return nil, noShard
	}
	table, err := r.shards.Table(ctx, name, wait)
	switch {
	case errors.Is(err, route.ErrNoShard):
		return nil, noSuchShard
	case err != nil:
		return nil, &refusal{status: http.StatusServiceUnavailable, why: "the shard's owner is not known yet", detail: err.Error()}
	}
	return &Router{table: table}, nil
}

// noSuchShard answers a request for a shard that the group does not have, or no longer has.
var noSuchShard = &refusal{status: http.StatusNotFound, why: route.ErrNoShard.Error(), final: true}

// Redirect returns a handler that sends clients to the owner of their request's shard, which
// shardOf names. It works as [Router.Redirect] does for the leader. Nil options mean the zero
// value.
func (r *ShardRouter) Redirect(shardOf func(r *http.Request) string, opts *RedirectOptions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		o := route.Or(opts)
		name := shardOf(req)
		router, no := r.router(req.Context(), name, patient(o.Wait, 0))
		if no != nil {
			no.answer(w)
			return
		}
		o.Election = route.ShardElection(o.Election, name)
		router.Redirect(&o).ServeHTTP(w, req)
	})
}

// ShardProxy is a reverse proxy to the owners of shards, made by [ShardRouter.Proxy].
type ShardProxy struct {
	router  *ShardRouter
	shardOf func(*http.Request) string
	o       ProxyOptions
	own     *http.Transport

	mu      sync.Mutex
	proxies map[*route.Table]*Proxy // of the shards that were asked for and are there
}

// Proxy returns a handler that sends each request to the owner of its shard, which shardOf names.
// It does all that [Router.Proxy] does for the leader of an election. A request is kept while
// nobody owns the shard, or its owner has just ceased to own it. It is sent again only if nobody
// has worked on it, or if it is idempotent. Refusals call the owner the leader.
//
// The options may be nil. Some have another meaning here:
//
//   - Election is the group's name, as in RequireOptions.
//   - LeaderID is this process's MemberID, if it is a member.
//   - Addresses and TLSFor get a record with the MemberID, the HostPorts and the shard's token,
//     and no ConnectionParams.
//
// A request that names no shard is answered 400. If the group does not have the shard, or no longer
// has it, the answer is 404, even to a request that waits.
func (r *ShardRouter) Proxy(shardOf func(r *http.Request) string, opts *ProxyOptions) *ShardProxy {
	p := &ShardProxy{router: r, shardOf: shardOf, o: route.Or(opts), proxies: map[*route.Table]*Proxy{}}
	if p.o.Transport == nil && p.o.TLSFor == nil { // with TLSFor each shard has its own
		p.own = newTransport(p.o.CheckAddress == nil, p.o.TLS)
		p.o.Transport = p.own
	}
	return p
}

// of returns the Proxy for a request, or why there is none.
func (p *ShardProxy) of(r *http.Request) (*Proxy, *refusal) {
	name, wait := p.shardOf(r), patient(p.o.Wait, 0)
	if r.ContentLength != 0 && !present(r) || r.Header.Get(sentBy) != "" {
		wait = 0 // see sender.worthwhile: no body has been read yet
	}
	router, no := p.router.router(r.Context(), name, wait)
	if no != nil {
		return nil, no
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	proxy := p.proxies[router.table]
	if proxy == nil {
		o := p.o
		o.Election = route.ShardElection(p.o.Election, name)
		proxy = router.Proxy(&o)
		p.proxies[router.table] = proxy
		router.table.AfterRemove(func() { p.forget(router.table) })
	}
	return proxy, nil
}

// forget closes the Proxy of a shard that is gone.
func (p *ShardProxy) forget(t *route.Table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proxies[t].Close()
	delete(p.proxies, t)
}

// ServeHTTP sends the request to the owner of its shard.
func (p *ShardProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	proxy, no := p.of(r)
	if no != nil {
		no.answer(w)
		return
	}
	proxy.ServeHTTP(w, r)
}

// Close closes the idle connections of a ShardProxy without a Transport of yours. Call it when the
// ShardProxy is not used any more.
func (p *ShardProxy) Close() {
	if p.own != nil {
		p.own.CloseIdleConnections()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, proxy := range p.proxies {
		proxy.Close()
	}
}
