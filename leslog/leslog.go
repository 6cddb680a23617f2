/*
Package leslog puts what a candidate is into its log lines, for log/slog.

	log := slog.New(leslog.NewHandler(slog.NewJSONHandler(os.Stderr, nil), campaign))
	log.Info("billed", "order", 7)

	{"level":"INFO","msg":"billed","order":7,"election":{"status":"leading","token":12,"leader":"worker-7","left":8200000000}}

Without this package, Config.Logger tells what happens to the election itself, and which shards
a member comes to own and lets go.

For package shard, [NewShardHandler] puts a shard's name and token into the lines of its
OnOwned:

	config.OnOwned = func(ctx context.Context, o *shard.Owned) error {
		log := slog.New(leslog.NewShardHandler(log.Handler(), o))
		...
		return nil
	}

	{"level":"INFO","msg":"billed","order":7,"shard":{"name":"7","token":12,"left":8200000000}}

Experimental: the API of this package may change in any minor version, even after v1.
*/
package leslog

import (
	"context"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/shard"
)

// Key is the name of the group that the attributes are in.
const Key = "election"

// Attr returns a group with what c is at this moment:
//
//	status  following, leading, draining or stopped
//	token   the fencing token of the newest leadership known; left out while nothing is known
//	leader  who holds the record, as far as is known; left out where it is vacant
//	left    while the view lasts: what is left of it, as a duration
//
// It may be called by any number of goroutines at once, and asks nobody.
func Attr(c leaderelection.Candidate) slog.Attr {
	view, entry := c.View(), c.Leader()
	attrs := []any{slog.String("status", c.Status().String())}
	leads := view.ValueInFuture()
	number, leader := entry.ElectionNumber, entry.LeaderID
	if leads && view.ElectionNumber() > number { // the record that says so is on its way
		number, leader = view.ElectionNumber(), ""
	}
	if number != leaderelection.NoElections {
		attrs = append(attrs, slog.Uint64("token", uint64(number)))
	}
	if leader != "" {
		attrs = append(attrs, slog.String("leader", leader))
	}
	if leads {
		attrs = append(attrs, left(view.Get(), view.Clock()))
	}
	return slog.Group(Key, attrs...)
}

// left is the attribute that says how long it is until then.
func left(until time.Time, clock clocks.Clock) slog.Attr {
	return slog.Duration("left", max(0, until.Sub(clock.Now().Round(0))).Round(time.Millisecond))
}

// Handler adds Attr, or ShardAttr, to each record. Made by NewHandler or NewShardHandler.
type Handler struct {
	next slog.Handler
	attr func() slog.Attr
}

// NewHandler returns a handler that hands each record to next, with Attr as it is
// then. Attributes given to Logger.With are worked out once, so those would go on
// saying what was. Under a group of Logger.WithGroup they are in that group, as are
// the record's own.
func NewHandler(next slog.Handler, c leaderelection.Candidate) *Handler {
	return &Handler{next, func() slog.Attr { return Attr(c) }}
}

// Enabled is the next handler's.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle adds the attributes.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	r = r.Clone()
	r.AddAttrs(h.attr())
	return h.next.Handle(ctx, r)
}

// WithAttrs returns a Handler whose records have more attributes.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.next.WithAttrs(attrs), h.attr}
}

// WithGroup returns a Handler whose records are in a group.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.next.WithGroup(name), h.attr}
}

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
