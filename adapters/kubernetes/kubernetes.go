/*
Package kubernetes runs a controller-runtime manager as a candidate of an election:
an operator whose leader is elected on any store, with a view and a fencing token. On the
Lease of controller-runtime's own election (deciders/kubernetes) replicas of both kinds may
campaign together, while you move an operator from one to the other.

	runner := lekubernetes.NewRunner(leaderelection.Config{
		Decider: decider, LeaderID: podName,
	})
	mgr, err := ctrl.NewManager(restConfig, runner.Options(ctrl.Options{}))
	...
	err = runner.Start(ctrl.SetupSignalHandler(), mgr) // in place of mgr.Start
	os.Exit(1)                                         // as after mgr.Start

All replicas run the manager. Caches, webhooks, metrics and health probes run
everywhere, so standbys are warm; the runnables that need leader election, which are
the controllers unless they say otherwise, start on the leader. [manager.Manager]'s
Elected channel works as usual.

# The campaign decides

controller-runtime asks client-go's elector, over a resourcelock.Interface. That elector does
not guarantee that only one client acts as leader, and has no fencing token. So here the lock
is a gate in this process. It lets client-go's elector win when the campaign has won, without
delay, and renew for as long as the manager runs.

When the campaign ceases to lead, for whatever reason, it cancels the ctx that the manager was
started with, and so that of every runnable. LeaseDuration, RenewDeadline and RetryPeriod have
no effect. TermLength and MaxClockSkew of the Config do.

# What it promises

A runnable that needs leader election is started only after this candidate was elected, and its
ctx is cancelled no later than the view ends. A reconciler must ask [Runner.View] immediately
before it writes, and send the fencing token along if the other end can compare it.

A manager starts once. When leadership is lost, Start ends at once with the cause. The process
must end, too, and be started again as a standby: controllers that do not stop may still run
while another leads. If all have stopped, the record is released before Start returns.

Leadership that is given up by choice (a signal, Transfer, StepDown, Healthy) is kept, and
extended, until the manager has stopped: for its GracefulShutdownTimeout (30 s) at most. The
Config's DrainTimeout is taken from there if it is zero. Start refuses a shorter one, and a
manager that does not wait for its controllers (GracefulShutdownTimeout 0). If controllers still
run after that time, nothing is released: the process ends, and the lease runs out.

It is a module of its own, so that nobody who imports the election links Kubernetes.

Experimental: the API of this package may change in any minor version, even after v1.
*/
package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/c8e606e4/leaderelection"
)

// errStopped is why the campaign ends where the manager has stopped by itself.
var errStopped = errors.New("leaderelection: the manager has stopped")

// defaultGrace is the GracefulShutdownTimeout of a manager whose options have none.
const defaultGrace = 30 * time.Second

// Runner runs a manager as a candidate. Its methods may be called by any number of
// goroutines at once.
type Runner struct {
	cfg     leaderelection.Config
	gate    *gate
	started atomic.Bool
	// needs is whether controllers need leader election. That a manager's settings
	// point to it shows that Options made them.
	needs bool
	grace time.Duration // the manager's GracefulShutdownTimeout
	view  atomic.Pointer[leaderelection.TimeView]
}

// NewRunner returns a Runner for a candidate. OnElected must be nil: to lead is to
// run what the manager runs then. What is wrong with cfg is told by Start.
func NewRunner(cfg leaderelection.Config) *Runner {
	return &Runner{cfg: cfg, gate: newGate(cfg.LeaderID), needs: true, grace: defaultGrace}
}

// Options returns o for a manager of this Runner: with leader election, by this
// Runner's gate. A manager that was made so waits until Start has begun the
// campaign, and the campaign has won. Call it last: o.Controller.NeedLeaderElection
// and o.GracefulShutdownTimeout must stay as they are afterwards.
func (r *Runner) Options(o manager.Options) manager.Options {
	o.LeaderElection = true
	o.LeaderElectionResourceLockInterface = r.gate
	o.LeaderElectionReleaseOnCancel = false // the campaign releases
	if n := o.Controller.NeedLeaderElection; n != nil {
		r.needs = *n
	}
	o.Controller.NeedLeaderElection = &r.needs
	if g := o.GracefulShutdownTimeout; g != nil {
		r.grace = *g
	}
	o.GracefulShutdownTimeout = &r.grace
	return o
}

// drain is for how long the lease is kept while the manager stops: as long as the manager
// waits for its controllers. If that is for ever (less than zero), as long as can be.
func (r *Runner) drain() (time.Duration, error) {
	grace, drain := r.grace, r.cfg.DrainTimeout
	if grace < 0 {
		grace = leaderelection.MaxTermLength
	}
	switch {
	case grace == 0:
		return 0, errors.New("leaderelection: GracefulShutdownTimeout is 0, so the manager does not wait for its controllers, and another would lead beside them: leave it nil, or set how long they take to stop")
	case drain == 0:
		return grace, nil
	case drain < grace:
		return 0, fmt.Errorf("leaderelection: DrainTimeout (%v) is shorter than the manager's GracefulShutdownTimeout (%v), so another would lead beside controllers that are still stopping: leave DrainTimeout out, or make it as long", drain, r.grace)
	}
	return drain, nil
}

// View returns the view of this process's leadership, or before there is one a view that
// is over. To be asked before each act. A Runner has one leadership.
func (r *Runner) View() *leaderelection.TimeView {
	if v := r.view.Load(); v != nil {
		return v
	}
	return &leaderelection.TimeView{}
}

// Start campaigns in the election, and runs a manager that was made with Options. It
// returns when both have ended and what was led is released: with what mgr.Start
// returned, which is nil if ctx has ended, joined with the cause if leadership
// was lost. It returns at once if the Config is wrong, contradicts the manager's options, or
// mgr was made without Options, and so would run its controllers on every standby. It returns
// an ErrPermanent if the store refused for good before anything had worked. A Runner starts once.
//
// If leadership was lost, or the lease could be kept no longer, Start returns the cause at once, as
// controller-runtime's own election does. It does not wait for controllers that are still
// stopping: another candidate may lead already. If controllers still run when the manager's
// GracefulShutdownTimeout is over, mgr.Start gives them up, and Start returns its error with nothing
// released. In both cases end the process: its controllers end with it, and the lease runs out. As
// long as the process lives the lease is kept, for DrainTimeout at most.
func (r *Runner) Start(ctx context.Context, mgr manager.Manager) error {
	if r.cfg.OnElected != nil {
		return fmt.Errorf("%w: OnElected must be nil for a Runner, which runs a manager in its place", leaderelection.ErrConfig)
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

	cfg := r.cfg
	var err error
	if cfg.DrainTimeout, err = r.drain(); err != nil {
		return err
	}
	stopping, stopped := context.WithCancel(context.Background()) // ends when the manager has stopped
	lost, abandoned := make(chan struct{}), false
	cfg.OnElected = func(leading context.Context, view *leaderelection.TimeView) {
		if !r.view.CompareAndSwap(nil, view) {
			return // the manager has had its leadership, and is on its way out
		}
		r.gate.open()
		select {
		case <-leading.Done():
			stopManager(context.Cause(leading))
			stopCampaign(context.Cause(leading)) // no second leadership: a manager starts once
			// Until the manager has stopped the lease is kept, for DrainTimeout at most.
			for view.ValueInFuture() && view.Clock().SleepFor(stopping, min(view.Clock().Until(view.Get()), time.Second)) {
			}
			if stopping.Err() == nil {
				close(lost)
				<-stopping.Done()
			}
		case <-stopping.Done():
		}
		for abandoned && view.ValueInFuture() {
			view.Clock().SleepUntil(context.Background(), view.Get())
		}
	}
	campaign, err := cfg.Start(campaigning)
	if err != nil {
		stopped()
		return err
	}
	var over sync.WaitGroup
	over.Go(func() { stopManager(campaign.Wait()) }) // a store that refuses for good

	ended := make(chan error, 1)
	go func() {
		err := mgr.Start(running)
		abandoned = errors.Is(err, context.DeadlineExceeded) // controllers run that the manager waits for no longer
		stopped()
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-lost: // others may lead by now, whatever the manager still waits for
		return fmt.Errorf("leaderelection: the manager was stopped, and has controllers that still run: %w", context.Cause(running))
	}
	var cause error
	if ctx.Err() == nil {
		cause = context.Cause(running)
	}
	stopCampaign(errStopped)
	if !abandoned {
		over.Wait()
	}
	if cause != nil {
		return errors.Join(fmt.Errorf("leaderelection: the manager was stopped: %w", cause), err)
	}
	return err
}

// gate is a lock that nobody contends for but client-go's elector in this process. It is
// shut until the campaign has won, and never shut again: that leadership has ended is
// told by the manager's ctx, at once, and not by a renewal that fails.
type gate struct {
	id     string
	opened chan struct{}
	once   sync.Once

	mu   sync.Mutex
	held *resourcelock.LeaderElectionRecord
}

var _ resourcelock.Interface = (*gate)(nil)

func newGate(id string) *gate { return &gate{id: id, opened: make(chan struct{})} }

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// Get waits until the campaign has won, so that the elector need not ask again and
// again, and then returns the record, or that there is none yet. Where ctx ends
// before that, somebody else is said to lead: the elector takes that quietly.
func (g *gate) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	select {
	case <-g.opened:
	case <-ctx.Done():
		return &resourcelock.LeaderElectionRecord{HolderIdentity: "another candidate", RenewTime: metav1.Now()}, []byte{1}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "elections"}, g.id)
	}
	held := *g.held
	return &held, []byte(held.RenewTime.String()), nil
}

// Create is the elector's way to win.
func (g *gate) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return g.Update(ctx, r)
}

// Update is the elector's way to renew.
func (g *gate) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = &r
	return nil
}

// RecordEvent does nothing: there is no object in the cluster for events to be about.
func (g *gate) RecordEvent(string) {}

// Identity is the candidate's LeaderID.
func (g *gate) Identity() string { return g.id }

// Describe names the gate in the manager's log.
func (g *gate) Describe() string { return "leaderelection/" + g.id }
