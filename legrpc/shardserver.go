package legrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection/internal/viewctx"
	"github.com/c8e606e4/leaderelection/shard"
)

// ShardKey is the metadata key by which a [ShardConn] sends along which shard a call is for.
const ShardKey = "leaderelection-shard"

// Owners says which shards this process owns. A *shard.Member is one.
type Owners interface {
	// Shard returns a shard, and whether this process may act on it at this moment.
	Shard(name string) (*shard.Owned, bool)
}

// OwnerOptions are for [UnaryOwnerInterceptor] and [StreamOwnerInterceptor]. The zero value
// is right for most.
type OwnerOptions struct {
	// Exempt says which methods ("/package.Service/Method") are served whatever this
	// process owns. Nil: those of grpc.health and grpc.reflection.
	Exempt func(fullMethod string) bool
	// Group names the group, as ShardOptions.Group does. Name it if calls pass through
	// services of several groups or elections.
	Group string
	// Shard returns which shard a call is for, "" for none. Req is nil for streams. Nil:
	// what the client has said, by a ShardConn; a handler then must see to it that the
	// request is one of that shard.
	Shard func(ctx context.Context, req any) string
}

type ownedKey struct{}

// OwnedFrom returns the shard that a handler behind the interceptors was called for, by its
// ctx: its Token is what writes elsewhere are to be fenced by. It is nil in any other ctx.
func OwnedFrom(ctx context.Context) *shard.Owned {
	o, _ := ctx.Value(ownedKey{}).(*shard.Owned)
	return o
}

// shardElection is what refusals for a shard are made in the name of: what one shard's
// owner says is of no other shard.
func shardElection(group, name string) string { return group + "/" + name }

// owner is what both interceptors have in common.
type owner struct {
	owners Owners
	o      OwnerOptions
}

func newOwner(owners Owners, o *OwnerOptions) *owner {
	w := &owner{owners: owners}
	if o != nil {
		w.o = *o
	}
	if w.o.Exempt == nil {
		w.o.Exempt = alwaysServed
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

// admit returns the shard that a call is for, and who refuses in its name, or why the call
// is not served.
func (w *owner) admit(ctx context.Context, req any) (*shard.Owned, *server, error) {
	name := w.o.Shard(ctx, req)
	if name == "" {
		return nil, nil, status.Error(codes.InvalidArgument, "leaderelection: the call names no shard")
	}
	s := &server{election: shardElection(w.o.Group, name), not: notOwner, ceased: ceasedToOwn}
	o, may := w.owners.Shard(name)
	if !may || o.Context().Err() != nil {
		return nil, nil, s.refusal(codes.FailedPrecondition, reasonNot)
	}
	return o, s, nil
}

// UnaryOwnerInterceptor serves a call only while this process owns its shard: it is
// [UnaryServerInterceptor] for shards, with the same promise. Once a shard is to be let go
// no new calls for it are served; those under way may end until OnOwned has returned, so
// have that wait for them. A call that names no shard ends with InvalidArgument.
func UnaryOwnerInterceptor(owners Owners, o *OwnerOptions) grpc.UnaryServerInterceptor {
	w := newOwner(owners, o)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if w.o.Exempt(info.FullMethod) {
			res, err := next(ctx, req)
			return res, unmarked(err)
		}
		owned, s, err := w.admit(ctx, req)
		if err != nil {
			return nil, err
		}
		owning := viewctx.New(context.WithValue(ctx, ownedKey{}, owned), owned)
		defer owning.Stop()
		res, err := next(owning, req)
		if !owned.ValueInFuture() {
			return nil, s.lost()
		}
		return res, unmarked(err)
	}
}

// StreamOwnerInterceptor is [UnaryOwnerInterceptor] for streams: nothing more is sent once
// the shard is not owned any more, and the stream's ctx is cancelled within a second of that,
// with the cause leaderelection.ErrExpired.
func StreamOwnerInterceptor(owners Owners, o *OwnerOptions) grpc.StreamServerInterceptor {
	w := newOwner(owners, o)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if w.o.Exempt(info.FullMethod) {
			return unmarked(next(srv, ss))
		}
		owned, s, err := w.admit(ss.Context(), nil)
		if err != nil {
			return err
		}
		ctx := viewctx.New(context.WithValue(ss.Context(), ownedKey{}, owned), owned)
		defer ctx.Stop()
		err = next(srv, &stream{ServerStream: ss, ctx: ctx, view: owned, server: s})
		if !owned.ValueInFuture() {
			return s.lost()
		}
		return unmarked(err)
	}
}
