package legrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection/internal/route"
	"github.com/c8e606e4/leaderelection/internal/route/viewhook"
	"github.com/c8e606e4/leaderelection/shard"
)

// ShardKey is the metadata key of the shard's name, which a [ShardConn] sends with each call.
const ShardKey = "leaderelection-shard"

// OwnerOptions are the settings of [UnaryOwnerInterceptor] and [StreamOwnerInterceptor]. The zero
// value is right for most.
type OwnerOptions struct {
	// Exempt reports whether a method ("/package.Service/Method") is served whatever this process
	// owns. Nil means the methods of grpc.health and grpc.reflection.
	Exempt func(fullMethod string) bool
	// Endless is ServerOptions.Endless for shards: such a call is ended when its shard must be let
	// go. All other calls are waited for, and keep the shard for up to DrainTimeout. Nil means that
	// no call is endless.
	Endless func(fullMethod string) bool
	// Group names the group, as ShardOptions.Group does. Set it if calls pass through services
	// of several groups or elections.
	Group string
	// Shard returns the name of the shard that a call is for, or "" for none. Req is nil for
	// streams. Nil means the name that the client has sent by a ShardConn. The handler must
	// then check that the request belongs to that shard.
	Shard func(ctx context.Context, req any) string
}

// owner is shared by both interceptors.
type owner struct {
	owners shard.Owners
	o      OwnerOptions
}

func newOwner(owners shard.Owners, o *OwnerOptions) *owner {
	w := &owner{owners: owners}
	if o != nil {
		w.o = *o
	}
	if w.o.Exempt == nil {
		w.o.Exempt = alwaysServed
	}
	if w.o.Endless == nil {
		w.o.Endless = never
	}
	if w.o.Shard == nil {
		w.o.Shard = func(ctx context.Context, _ any) string {
			if all := metadata.ValueFromIncomingContext(ctx, ShardKey); len(all) == 1 {
				return all[0]
			}
			return ""
		}
	}
	return w
}

// admit is the admission of calls to a shard's owner. The shard is kept for the call until it leaves.
func (w *owner) admit(ctx context.Context, method string, req any) (*admitted, error) {
	name := w.o.Shard(ctx, req)
	if name == "" {
		return nil, status.Error(codes.InvalidArgument, "leaderelection: the call names no shard")
	}
	s := &server{election: route.ShardElection(w.o.Group, name), not: notOwner, ceased: ceasedToOwn}
	o, may := w.owners.Shard(name)
	if !may || !viewhook.EnterShard(o) {
		return nil, s.refusal(codes.FailedPrecondition, reasonNot)
	}
	a := &admitted{shard.WithOwned(ctx, o), o, s, func() { viewhook.LeaveShard(o) }}
	if w.o.Endless(method) {
		a.view = undrained{o, func() bool { return o.Context().Err() == nil }}
	}
	return a, nil
}

// UnaryOwnerInterceptor serves a call only while this process owns the call's shard. Use it at
// every member. It is [UnaryServerInterceptor] for shards, with the same promise. When a shard must
// be let go, it serves no new calls for that shard. The shard is kept until the handlers of the calls
// under way, and OnOwned, have returned, for at most DrainTimeout. A call that names no shard ends
// with InvalidArgument.
func UnaryOwnerInterceptor(owners shard.Owners, opts *OwnerOptions) grpc.UnaryServerInterceptor {
	w := newOwner(owners, opts)
	return unary(w.o.Exempt, w.admit)
}

// StreamOwnerInterceptor is [UnaryOwnerInterceptor] for streams. Once this process no longer owns
// the shard, nothing more is sent. The stream's ctx is cancelled within a second of that, with the
// cause leaderelection.ErrNotLeading. Streams that last until somebody ends them keep a shard that
// must be let go for DrainTimeout: see OwnerOptions.Endless.
func StreamOwnerInterceptor(owners shard.Owners, opts *OwnerOptions) grpc.StreamServerInterceptor {
	w := newOwner(owners, opts)
	return streaming(w.o.Exempt, w.admit)
}
