package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/c8e606e4/leaderelection"
)

// errStopped is why the campaign ends where the manager has stopped by itself.
var errStopped = errors.New("leaderelection: the manager has stopped")

// Runner runs a manager as a candidate. Its methods may be called by any number of
// goroutines at once.
type Runner struct {
	cfg     leaderelection.Config
	gate    *gate
	started atomic.Bool
	// needs is whether controllers need leader election. That a manager's settings
	// point to it shows that Options made them.
	needs bool
	view  atomic.Pointer[leaderelection.TimeView]
}

// NewRunner returns a Runner for a candidate. OnElected must be nil: to lead is to
// run what the manager runs then. What is wrong with cfg is told by Start.
func NewRunner(cfg leaderelection.Config) *Runner {
	return &Runner{cfg: cfg, gate: newGate(cfg.LeaderID), needs: true}
}

// Options returns o for a manager of this Runner: with leader election, by this
// Runner's gate. A manager that was made so waits until Start has begun the
// campaign, and the campaign has won. Call it last: o.Controller.NeedLeaderElection
// must stay as it is afterwards.
func (r *Runner) Options(o manager.Options) manager.Options {
	o.LeaderElection = true
	o.LeaderElectionResourceLockInterface = r.gate
	o.LeaderElectionReleaseOnCancel = false // the campaign releases
	if n := o.Controller.NeedLeaderElection; n != nil {
		r.needs = *n
	}
	o.Controller.NeedLeaderElection = &r.needs
	return o
}

// View returns the view of this process's leadership, or before there is one a view that
// is over. To be asked before each act. A Runner has one leadership.
func (r *Runner) View() *leaderelection.TimeView {
	if v := r.view.Load(); v != nil {
		return v
	}
	return leaderelection.NewTimeView(r.cfg.Clock)
}

// Start campaigns in the election, and runs a manager that was made with Options. It
// returns when both have ended and what was led is released: with what mgr.Start
// returned, which is nil where ctx has ended, joined with the cause where leadership
// was lost; or at once where the Config is wrong, or mgr was made without Options, and
// so would run its controllers on every standby; or with an ErrPermanent where the
// store refused for good before anything had worked. A Runner starts once.
func (r *Runner) Start(ctx context.Context, mgr manager.Manager) error {
	if r.cfg.OnElected != nil {
		return errors.New("leaderelection: wrong Config: OnElected must be nil for a Runner, which runs a manager in its place")
	}
	if mgr != nil && mgr.GetControllerOptions().NeedLeaderElection != &r.needs { // a Config that is wrong is told of first
		return errors.New("leaderelection: this manager was not made with the Options of this Runner, and would run its controllers while another leads: make it by manager.New(config, runner.Options(options))")
	}
	if !r.started.CompareAndSwap(false, true) {
		return errors.New("leaderelection: a Runner starts once, as its manager does")
	}
	running, stopManager := context.WithCancelCause(ctx)
	defer stopManager(nil)
	campaigning, stopCampaign := context.WithCancelCause(ctx)
	defer stopCampaign(nil)
	stopped := make(chan struct{})

	cfg := r.cfg
	cfg.OnElected = func(leading context.Context, view *leaderelection.TimeView) {
		if !r.view.CompareAndSwap(nil, view) {
			return // the manager has had its leadership, and is on its way out
		}
		r.gate.open()
		select {
		case <-leading.Done():
			stopManager(context.Cause(leading))
			stopCampaign(context.Cause(leading)) // no second leadership: a manager starts once
			<-stopped                            // until then the lease is kept, for DrainTimeout at most
		case <-stopped:
		}
	}
	campaign, err := cfg.Start(campaigning)
	if err != nil {
		return err
	}
	var over sync.WaitGroup
	over.Go(func() { stopManager(campaign.Wait()) }) // a store that refuses for good

	err = mgr.Start(running)
	var cause error
	if ctx.Err() == nil {
		cause = context.Cause(running)
	}
	close(stopped)
	stopCampaign(errStopped)
	over.Wait()
	if cause != nil {
		return errors.Join(fmt.Errorf("leaderelection: the manager was stopped: %w", cause), err)
	}
	return err
}
