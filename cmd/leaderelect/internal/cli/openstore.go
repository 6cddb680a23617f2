package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/early"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// openPatience is how long one attempt to open a store may take.
const openPatience = 10 * time.Second

// started is how long after the store was opened a command is not starting any more.
const started = time.Second

// openStore opens the store for a command that goes on for long.
func (a *app) openStore(ctx context.Context, url string) (leaderelection.RaceDecider, error) {
	return patiently(ctx, a, func() (leaderelection.RaceDecider, error) { return a.openOnce(ctx, url) })
}

// openElection opens the store for a candidate, by open or openOnce, and says which one it is.
func (a *app) openElection(ctx context.Context, url string, open func(context.Context, string) (leaderelection.RaceDecider, error)) (leaderelection.RaceDecider, error) {
	d, err := open(ctx, url)
	if err == nil {
		a.logger().Info("the store is open", "place", placeOf(d))
	}
	return d, err
}

// placeOf is where the record is, as the store itself has resolved its URL: candidates whose
// places differ are in different elections.
func placeOf(d leaderelection.RaceDecider) string {
	if s, says := d.(fmt.Stringer); says {
		return s.String()
	}
	return ""
}

// openGroup opens a group, as openStore does a store.
func (a *app) openGroup(ctx context.Context, url string) (*store.Group, error) {
	return patiently(ctx, a, func() (*store.Group, error) { return a.openGroupOnce(ctx, url, openPatience) })
}

// patiently opens a store that cannot be reached yet again and again. It returns as soon as
// ctx has ended.
func patiently[T any](ctx context.Context, a *app, once func() (T, error)) (opened T, err error) {
	began := time.Now()
	fails := loop.Outage{Over: "the store is open", To: func(level slog.Level, msg string, args ...any) { a.logger().Log(ctx, level, msg, args...) }}
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		opened, err = once()
		switch {
		case err == nil:
			fails.Worked(time.Since(began), "")
			time.AfterFunc(started, early.Over)
			return opened, nil
		case ctx.Err() != nil, errors.Is(err, leaderelection.ErrPermanent), store.Wrong(err):
			return opened, err
		}
		fails.Failed(time.Since(began), "", "the store cannot be opened; trying again", "in", pause, "err", err)
		if !clocks.System().SleepFor(ctx, pause) {
			return opened, fmt.Errorf("%w: the store could not be opened: %w", context.Cause(ctx), err)
		}
	}
}

// openOnce tries once.
func (a *app) openOnce(ctx context.Context, url string) (leaderelection.RaceDecider, error) {
	return once(ctx, func() (leaderelection.RaceDecider, error) { return store.Open(ctx, url, openPatience) })
}

// openGroupOnce tries once.
func (a *app) openGroupOnce(ctx context.Context, url string, patience time.Duration) (*store.Group, error) {
	return once(ctx, func() (*store.Group, error) { return store.OpenGroup(ctx, url, firstRecord, patience) })
}

// once calls open until ctx ends. A driver that ignores its ctx is left behind.
func once[T any](ctx context.Context, open func() (T, error)) (opened T, err error) {
	type answer struct {
		opened T
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		opened, err := open()
		answers <- answer{opened, err}
	}()
	select {
	case o := <-answers:
		if o.err != nil && ctx.Err() != nil {
			return opened, fmt.Errorf("%w: opening the store: %w", context.Cause(ctx), o.err)
		}
		return o.opened, o.err
	case <-ctx.Done():
		return opened, context.Cause(ctx)
	}
}
