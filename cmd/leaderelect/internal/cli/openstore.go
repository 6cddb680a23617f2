package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/early"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

// openPatience is how long one attempt to open a store may take.
const openPatience = 10 * time.Second

// started is how long after the store was opened a command is not starting any more.
const started = time.Second

// openStore opens the store for a command that goes on for long: a store that
// cannot be reached yet is tried again. It returns as soon as ctx has ended.
func (a *app) openStore(ctx context.Context, url string) (leaderelection.RaceDecider, error) {
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		d, err := a.openOnce(ctx, url)
		switch {
		case err == nil:
			time.AfterFunc(started, early.Over)
			return d, nil
		case ctx.Err() != nil, errors.Is(err, leaderelection.ErrPermanent), errors.Is(err, store.ErrURL):
			return nil, err
		}
		a.logger().Warn("the store cannot be opened; trying again", "in", pause, "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: the store could not be opened: %w", context.Cause(ctx), err)
		}
	}
}

// openOnce tries once. A driver that does not heed its ctx is left behind.
func (a *app) openOnce(ctx context.Context, url string) (leaderelection.RaceDecider, error) {
	type opened struct {
		d   leaderelection.RaceDecider
		err error
	}
	answer := make(chan opened, 1)
	go func() {
		d, err := store.Open(ctx, url, openPatience)
		answer <- opened{d, err}
	}()
	select {
	case o := <-answer:
		if o.err != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("%w: opening the store: %w", context.Cause(ctx), o.err)
		}
		return o.d, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
