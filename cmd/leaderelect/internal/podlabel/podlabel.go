// Package podlabel has a label follow the leader among pods of Kubernetes, so that a Service
// can select by it.
package podlabel

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Label is what the leader's pod has, with the value "true".
const Label = "leaderelection/leader"

// again is how often a leader looks whether the label is where it belongs.
const again = 10 * time.Second

// Pods are those among which the label moves.
type Pods interface {
	// Labelled returns the names of those that have the label.
	Labelled(ctx context.Context) ([]string, error)
	// Label gives the label to a pod, or takes it away.
	Label(ctx context.Context, pod string, give bool) error
}

// Follow has pod carry the label while cfg leads, and no other. What fails is logged, and
// tried again while it leads. A label that cannot be taken away the next leader takes.
func Follow(cfg *leaderelection.Config, pods Pods, pod string, log *slog.Logger) {
	f := &follower{pods: pods, pod: pod, log: log}
	elected, ousting := cfg.OnElected, cfg.OnOusting
	cfg.OnElected = func(ctx context.Context, view *leaderelection.TimeView) {
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { f.lead(ctx, view) })
		if elected != nil {
			elected(ctx, view)
		}
	}
	cfg.OnOusting = func(ctx context.Context) {
		f.leave(ctx)
		if ousting != nil {
			ousting(ctx)
		}
	}
}

type follower struct {
	pods Pods
	pod  string
	log  *slog.Logger

	mu sync.Mutex // one of lead's looks, or leave
}

// lead looks after the label until the view is over.
func (f *follower) lead(ctx context.Context, view *leaderelection.TimeView) {
	for ctx.Err() == nil {
		pause := again
		if err := f.look(ctx, view); err != nil && ctx.Err() == nil {
			f.log.Warn("the leader's label is not right; trying again", "label", Label, "err", err)
			pause = time.Second
		}
		if !view.Clock().SleepFor(ctx, pause) {
			return
		}
	}
}

// look sets right who has the label, this pod first.
func (f *follower) look(ctx context.Context, view *leaderelection.TimeView) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	have, err := f.pods.Labelled(ctx)
	if err != nil {
		return err
	}
	own := false
	for _, pod := range have {
		own = own || pod == f.pod
	}
	if !own && view.ValueInFuture() {
		if err := f.pods.Label(ctx, f.pod, true); err != nil {
			return err
		}
	}
	for _, pod := range have {
		if pod == f.pod || !view.ValueInFuture() {
			continue
		}
		if err := f.pods.Label(ctx, pod, false); err != nil {
			return err
		}
	}
	return nil
}

// leave takes the label from this pod, before the lease is released.
func (f *follower) leave(ctx context.Context) {
	f.mu.Lock() // the leader's ctx has ended, and lead with it
	defer f.mu.Unlock()
	if err := f.pods.Label(ctx, f.pod, false); err != nil {
		f.log.Warn("the leader's label stays until the next leader takes it", "label", Label, "err", err)
	}
}
