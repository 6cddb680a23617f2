package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// WatchConfig is an observer: it follows a group's assignment and takes no part. Routers
// are.
type WatchConfig struct {
	// Store is as in the members' Config. Required.
	Store func(name string) (leaderelection.RaceDecider, error)

	// PollInterval is how often it is asked for a newer assignment, if the store does
	// not push. Zero means 7.5 s.
	PollInterval time.Duration

	// MaxClockSkew, SharedClock, Clock and Logger are as in Config. All optional.
	MaxClockSkew time.Duration
	SharedClock  bool
	Clock        clocks.Clock
	Logger       *slog.Logger
}

// Watch follows the group until ctx ends, and calls cb with the first assignment found and
// with each newer one, one call at a time and in order; those that come while cb runs are
// merged. It returns context.Cause(ctx), or at once where the WatchConfig is wrong. What
// cannot be read or understood is logged, and tried again.
func (w WatchConfig) Watch(ctx context.Context, cb func(ctx context.Context, a *Assignment)) error {
	var faults []error
	if w.Store == nil {
		faults = append(faults, errors.New("the Store is nil: it returns the decider of each record"))
	}
	if cb == nil {
		faults = append(faults, errors.New("the callback given to Watch is nil"))
	}
	if w.PollInterval < 0 || w.MaxClockSkew < 0 {
		faults = append(faults, fmt.Errorf("PollInterval is %v and MaxClockSkew %v, must not be negative", w.PollInterval, w.MaxClockSkew))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("shard: wrong WatchConfig: %w", err)
	}
	if w.PollInterval == 0 {
		w.PollInterval = leaderelection.DefaultTermLength / 2
	}
	s := newStores(w.Store)
	if err := s.distinct(ctx, assignmentName, coordinatorName); err != nil {
		if errors.Is(err, context.Cause(ctx)) {
			return err
		}
		return fmt.Errorf("shard: wrong WatchConfig: %w", err)
	}
	return w.follow(ctx, s, s.deciders[assignmentName], s.deciders[coordinatorName], cb)
}

// follow looks at a small record where the store must be asked: the coordinator's.
func (w *WatchConfig) follow(ctx context.Context, s *stores, d, coordinator leaderelection.RaceDecider, cb func(context.Context, *Assignment)) error {
	hint := leaderelection.WatchConfig{
		Decider: d, PollInterval: w.PollInterval, MaxClockSkew: w.MaxClockSkew, SharedClock: w.SharedClock, Clock: w.Clock,
	}
	_, pushes := d.(leaderelection.ChangeFeed)
	if !pushes {
		hint.Decider = coordinator
	}
	var newest atomic.Uint64 // version known
	look := make(chan struct{}, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			err := hint.Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) {
				if v, says := coordinatorVersion(&e); says && !pushes && uint64(v) <= newest.Load() {
					return // an extension
				}
				select {
				case look <- struct{}{}:
				default:
				}
			})
			if ctx.Err() == nil {
				w.warn(err)
				sleep(ctx, w.PollInterval)
			}
		}
	}()
	defer func() { <-watched }()
	var known *assignment
	for look <- struct{}{}; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look:
		}
		a, err := w.read(ctx, s, d)
		switch {
		case err != nil:
			w.warn(err)
			if sleep(ctx, w.PollInterval/4); len(look) == 0 {
				look <- struct{}{}
			}
		case a != nil && (known == nil || a.version > known.version):
			known = a
			newest.Store(uint64(a.version))
			cb(ctx, a.public())
		}
	}
}

func (w *WatchConfig) read(ctx context.Context, s *stores, d leaderelection.RaceDecider) (*assignment, error) {
	e, err := call(ctx, s, assignmentName, w.PollInterval, current(d))
	if err != nil {
		return nil, err
	}
	return readAssignment(e)
}

func (w *WatchConfig) warn(err error) {
	if w.Logger != nil {
		w.Logger.Warn("shard: the assignment cannot be followed", "err", err)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
