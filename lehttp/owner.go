package lehttp

import (
	"net/http"

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
// When a shard must be let go, RequireOwner admits no new requests for it. The shard is kept until the
// requests that were admitted, and OnOwned, have returned, for at most DrainTimeout.
//
// The handler gets the shard, and its fencing token, by [shard.OwnedFrom]. A request for which
// shardOf returns "" is answered 400.
func RequireOwner(owners shard.Owners, shardOf func(r *http.Request) string, opts *OwnerOptions) func(http.Handler) http.Handler {
	var o OwnerOptions
	if opts != nil {
		o = *opts
	}
	return gate(func(r *http.Request) (*leadership, bool) {
		name := shardOf(r)
		if name == "" {
			return nil, false
		}
		m := marksOf(shardElection(o.Group, name))
		l := &leadership{marks: &m, refusal: notOwned,
			ceased: "this process has ceased to own the shard while it worked on the request, which may have taken effect"}
		s, may := owners.Shard(name)
		if may = may && s.Context().Err() == nil; may {
			l.view, l.owned, l.lasts = s, s, func() bool { return s.Context().Err() == nil }
		}
		return l, may
	}).middleware(o.Otherwise)
}

// shardElection returns the name of the election of refusals for a shard. Each shard has its own,
// since a refusal for one says nothing about another.
func shardElection(group, name string) string { return group + "/" + name }

// noShard answers a request that names no shard.
var noShard = &refusal{status: http.StatusBadRequest, why: "the request names no shard"}

func notOwned() *refusal {
	return &refusal{status: http.StatusServiceUnavailable, why: "this process does not own the shard"}
}
