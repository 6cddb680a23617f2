package lehttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/route"
	"github.com/c8e606e4/leaderelection/shard"
)

// ShardRouter knows who owns which shard of a group, for the handlers made of it. Its
// methods may be called by any number of goroutines at once.
//
// It goes by the newest assignment that it has seen, also while the store does not answer.
// So it may send a request to a process that has just ceased to own the shard; that one
// refuses it, where it has [RequireOwner], and it is kept until the next owner is known.
type ShardRouter struct {
	shards *route.Shards
	done   <-chan struct{}

	mu      sync.Mutex
	routers map[string]*Router // of each shard that was asked for
}

// FollowShards returns a ShardRouter that watches a group until ctx ends. It returns at
// once, and refuses only a WatchConfig that is wrong.
func FollowShards(ctx context.Context, w shard.WatchConfig) (*ShardRouter, error) {
	shards, done, err := route.FollowShards(ctx, w)
	if err != nil {
		return nil, err
	}
	return &ShardRouter{shards: shards, done: done, routers: map[string]*Router{}}, nil
}

// NewShardRouter returns a ShardRouter that learns of assignments by News alone: for a
// member, which reads them anyway.
//
//	router := lehttp.NewShardRouter(nil)
//	config.Changed = func(_ context.Context, a *shard.Assignment) { router.News(a) }
//
// A nil clock is the system's.
func NewShardRouter(clock clocks.Clock) *ShardRouter {
	done := make(chan struct{})
	close(done)
	return &ShardRouter{shards: route.NewShards(clock), done: done, routers: map[string]*Router{}}
}

// News tells the ShardRouter of an assignment. An older one than it knows is ignored.
func (r *ShardRouter) News(a *shard.Assignment) { r.shards.News(a) }

// Owner returns who owns a shard, as of the newest assignment known, and false if that has
// no such shard, or none is known yet.
func (r *ShardRouter) Owner(name string) (shard.Owner, bool) { return r.shards.Owner(name) }

// Done is closed when a ShardRouter made by FollowShards has ended, after its ctx did; it
// is closed from the start for one made by NewShardRouter.
func (r *ShardRouter) Done() <-chan struct{} { return r.done }

// router returns the Router of one shard. It waits until an assignment is known, for wait
// at most.
func (r *ShardRouter) router(ctx context.Context, name string, wait time.Duration) (*Router, *refusal) {
	if name == "" {
		return nil, noShard
	}
	table, err := r.shards.Table(ctx, name, wait)
	switch {
	case errors.Is(err, route.ErrNoShard):
		return nil, &refusal{status: http.StatusNotFound, why: err.Error()}
	case err != nil:
		return nil, &refusal{status: http.StatusServiceUnavailable, why: "the shard's owner is not known yet", detail: err.Error()}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.routers[name] == nil {
		r.routers[name] = &Router{table: table, done: r.done}
	}
	return r.routers[name], nil
}

// Redirect returns a handler that sends clients to the owner of the shard that shardOf
// names for a request, as Router.Redirect sends them to the leader. Nil options are the
// zero ones.
func (r *ShardRouter) Redirect(shardOf func(r *http.Request) string, options *RedirectOptions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		router, no := r.router(req.Context(), shardOf(req), 0)
		if no != nil {
			no.answer(w)
			return
		}
		router.Redirect(options).ServeHTTP(w, req)
	})
}

// ShardProxy sends requests to the owners of their shards: as a reverse proxy, and as the
// http.RoundTripper of a client. See [ShardRouter.Proxy].
type ShardProxy struct {
	router  *ShardRouter
	shardOf func(*http.Request) string
	o       ProxyOptions
	own     *http.Transport

	mu      sync.Mutex
	proxies map[string]*Proxy
}

// Proxy returns a handler that sends each request to the owner of its shard, which shardOf
// names, with all that [Router.Proxy] does for the leader of an election: a request is
// kept while nobody owns the shard, or its owner has just ceased to, and is sent again only
// if nobody has worked on it, or if it is idempotent. Refusals call the owner the leader.
//
// Of the options, which may be nil, Election is the group's name, as OwnerOptions.Group has
// it, LeaderID this process's MemberID where it is a member, and the record that Addresses
// and TLSFor are given has the MemberID, the HostPorts and the shard's token, and no
// ConnectionParams. A request that names no shard is answered 400, one for a shard that the
// group has not 404.
//
// As the Transport of an http.Client it does the same for that client's requests; the host
// of their URLs means nothing.
func (r *ShardRouter) Proxy(shardOf func(r *http.Request) string, options *ProxyOptions) *ShardProxy {
	p := &ShardProxy{router: r, shardOf: shardOf, proxies: map[string]*Proxy{}}
	if options != nil {
		p.o = *options
	}
	if p.o.Wait == 0 {
		p.o.Wait = defaultWait
	}
	if p.o.Transport == nil && p.o.TLSFor == nil { // with TLSFor each shard has its own
		p.own = newTransport(p.o.CheckAddress == nil, p.o.TLS)
		p.o.Transport = p.own
	}
	return p
}

// of returns the Proxy for a request, or why there is none.
func (p *ShardProxy) of(r *http.Request) (*Proxy, *refusal) {
	name := p.shardOf(r)
	router, no := p.router.router(r.Context(), name, p.o.Wait)
	if no != nil {
		return nil, no
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	proxy := p.proxies[name]
	if proxy == nil {
		o := p.o
		o.Election = shardElection(p.o.Election, name)
		proxy = router.Proxy(&o)
		p.proxies[name] = proxy
	}
	return proxy, nil
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

// RoundTrip sends the request to the owner of its shard, for a client in this process. Its
// errors are those of the owner's not being there, or out of reach, in time.
func (p *ShardProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := p.send(r)
	switch {
	case r.Body == nil || r.Body == http.NoBody:
	case err != nil:
		_ = r.Body.Close() // as RoundTrip must, also on errors
	default: // the owner may answer before it has read everything
		res.Body = &bothBodies{res.Body, r.Body}
	}
	return res, err
}

func (p *ShardProxy) send(r *http.Request) (*http.Response, error) {
	proxy, no := p.of(r)
	if no != nil {
		return nil, no
	}
	out := r.Clone(r.Context())
	out.GetBody = nil // what can be sent again is for the sender to say
	return (*sender)(proxy).RoundTrip(out)
}

// bothBodies closes a request's body with that of its answer.
type bothBodies struct {
	io.ReadCloser
	request io.Closer
}

func (b *bothBodies) Close() error {
	defer b.request.Close()
	return b.ReadCloser.Close()
}

// Close closes the idle connections of a ShardProxy that was given no Transport.
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
