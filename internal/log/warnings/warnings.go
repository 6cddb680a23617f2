// Package warnings is the log for code that was given none.
package warnings

import (
	"cmp"
	"context"
	"log/slog"
)

// Or is logger, or in place of nil slog.Default from Warn on: silence is asked for.
func Or(logger *slog.Logger) *slog.Logger { return cmp.Or(logger, fallback) }

var fallback = slog.New(handler{})

// handler is the default's of the time when something is logged.
type handler struct{}

func (handler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && slog.Default().Enabled(ctx, l)
}

func (handler) Handle(ctx context.Context, r slog.Record) error {
	return slog.Default().Handler().Handle(ctx, r)
}

func (handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return with{slog.Default().Handler().WithAttrs(attrs)}
}
func (handler) WithGroup(name string) slog.Handler {
	return with{slog.Default().Handler().WithGroup(name)}
}

// with is what was the default when it was given attributes.
type with struct{ slog.Handler }

func (w with) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}
