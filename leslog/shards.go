package leslog

import (
	"log/slog"

	"github.com/c8e606e4/leaderelection/shard"
)

// ShardKey is the name of the group that the attributes of a shard are in.
const ShardKey = "shard"

// ShardAttr returns a group with what a shard is to its owner at this moment:
//
//	name   its name
//	token  its fencing token
//	left   while it may be acted on: for how long, unless the session is extended
//
// It may be called by any number of goroutines at once, and asks nobody.
func ShardAttr(o *shard.Owned) slog.Attr {
	attrs := []any{slog.String("name", o.Name()), slog.Uint64("token", uint64(o.ElectionNumber()))}
	if until := o.Get(); !until.IsZero() {
		attrs = append(attrs, left(until, o.Clock()))
	}
	return slog.Group(ShardKey, attrs...)
}

// NewShardHandler returns a handler that hands each record to next, with ShardAttr as it is
// then: for the lines of one shard's OnOwned. It is as [NewHandler] otherwise.
func NewShardHandler(next slog.Handler, o *shard.Owned) *Handler {
	return &Handler{next, func() slog.Attr { return ShardAttr(o) }}
}
