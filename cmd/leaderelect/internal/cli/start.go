package cli

import (
	"context"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/prefer"
)

// start starts a campaign with a hold, which is kept only if the job succeeds if onSuccess. Each command does so that
// has --priority: a leader that is less preferred is asked to hand over while the campaign goes on.
func start(ctx context.Context, cfg leaderelection.Config, hold time.Duration, onSuccess bool) (*leaderelection.Campaign, error) {
	begin := cfg.StartHeld
	if onSuccess {
		begin = cfg.StartHeldOnSuccess
	}
	campaign, err := begin(ctx, hold)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		<-campaign.Done()
		stop()
	}()
	go func() { _ = prefer.Over(ctx, campaign, cfg) }() // it ends with ctx
	return campaign, nil
}
