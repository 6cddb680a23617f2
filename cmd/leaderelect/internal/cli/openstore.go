package cli

import (
	"context"
	"errors"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

// openStore opens the store for a command that goes on for long: a store that
// cannot be reached yet is tried again.
func (a *app) openStore(ctx context.Context, url string) (leaderelection.RaceDecider, error) {
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		d, err := store.Open(ctx, url, 10*time.Second)
		switch {
		case err == nil:
			return d, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, leaderelection.ErrPermanent), errors.Is(err, store.ErrURL):
			return nil, err
		}
		a.logger().Warn("the store cannot be opened; trying again", "in", pause, "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}
