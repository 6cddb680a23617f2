package leslog

import (
	"context"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/measure"
	"github.com/c8e606e4/leaderelection/shard"
)

// ShardKey is the name of the group that the attributes of a shard are in.
const ShardKey = "shard"

// Owned is a shard that is asked. A *shard.Owned is one.
type Owned interface {
	Name() string
	Token() leaderelection.ElectionNumber
	Get() time.Time
	Clock() clocks.Clock
}

// ShardAttr returns a group with what a shard is to its owner at this moment:
//
//	name   its name
//	token  its fencing token
//	left   while it may be acted on: for how long, unless the session is extended
//
// It may be called by any number of goroutines at once, and asks nobody.
func ShardAttr(o Owned) slog.Attr {
	attrs := named(o)
	if until := o.Get(); !until.IsZero() {
		attrs = append(attrs, left(until, o.Clock()))
	}
	return slog.Group(ShardKey, attrs...)
}

// named is what never changes of a shard that is owned.
func named(o Owned) []any {
	return []any{slog.String("name", o.Name()), slog.Uint64("token", uint64(o.Token()))}
}

// NewShardHandler returns a handler that hands each record to next, with ShardAttr as it is
// then: for the lines of one shard's OnOwned. It is as [NewHandler] otherwise.
func NewShardHandler(next slog.Handler, o Owned) *Handler {
	return &Handler{next, func() slog.Attr { return ShardAttr(o) }}
}

// ShardTrace returns hooks for shard.Config.ShardTrace that tell log what becomes of a
// member's shards. The lines, and what they have besides the group ShardKey with name and token:
//
//	"shard owned"   session
//	"shard let go"  session, cause, and as "drained" for how long OnOwned was waited for
//	"assignment"    version, shards, unowned, moving, members
//
// They are at the level Info, but "shard let go" is a Warn if the member has lost its
// session or the store was set back, and "assignment" a Debug if no other number of shards
// is unowned than before. Config.Logger tells of the same events, and of much else; give the
// member one of the two. One ShardTrace is for one member.
func ShardTrace(log *slog.Logger) *shard.Trace {
	state, unowned := measure.NewGroup(nil, shardErrors), -1
	owns := func(e shard.Owns) {
		log.LogAttrs(context.Background(), slog.LevelInfo, "shard owned",
			slog.Group(ShardKey, named(e.Owned)...), slog.String("session", e.Owned.Session().String()))
	}
	letGo := func(e shard.LetGo) {
		cause, level := state.LetGo(e.Cause), slog.LevelWarn
		if cause == "moved" || cause == "shutdown" || cause == "resigned" {
			level = slog.LevelInfo
		}
		log.LogAttrs(context.Background(), level, "shard let go",
			slog.Group(ShardKey, named(e.Owned)...), slog.String("session", e.Owned.Session().String()),
			slog.String("cause", cause), slog.Duration("drained", e.Time.Sub(e.Asked).Round(time.Millisecond)))
	}
	assignment := func(a *shard.Assignment) {
		state.Assignment(a)
		now, level := state.Now(), slog.LevelDebug
		if now.Unowned != unowned {
			level, unowned = slog.LevelInfo, now.Unowned
		}
		log.LogAttrs(context.Background(), level, "assignment", slog.Uint64("version", now.Version), slog.Int("shards", a.Len()),
			slog.Int("unowned", now.Unowned), slog.Int("moving", now.Moving), slog.Int("members", len(a.Members())))
	}
	return &shard.Trace{Owns: owns, LetGo: letGo, Assignment: assignment}
}

// shardErrors are for package measure, which knows nothing of package shard.
var shardErrors = measure.ShardErrors{Moved: shard.ErrMoved, SetBack: shard.ErrSetBack, Failed: shard.ErrFailed}
