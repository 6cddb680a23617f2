// Package leaderslice has a Service of Kubernetes lead to the leader alone: the leader writes
// its address into the EndpointSlice of a Service without a selector.
package leaderslice

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// ErrHostPort means that the candidate's addresses are none that a Service can lead to.
var ErrHostPort = errors.New("an EndpointSlice leads to addresses")

// How often a leader looks whether the slice is right. What has failed is tried again soon,
// and then ever less often, down to that.
const (
	again = 10 * time.Second
	soon  = time.Second
)

// Slice is an EndpointSlice.
type Slice interface {
	// Lead has it lead to the first of these addresses that is of its type, unless a later
	// leadership than number has written it, which is an error. Without addresses it has it
	// lead nowhere, if this leadership has written it.
	Lead(ctx context.Context, number leaderelection.ElectionNumber, hostPorts []string) error
}

// Follow has slice lead to cfg's HostPort while cfg leads. What fails is logged, and tried
// again while it leads. What a leader leaves behind the next one replaces.
func Follow(cfg *leaderelection.Config, slice Slice, log *slog.Logger) {
	f := &follower{slice: slice, hostPorts: cfg.HostPort, log: log}
	elected, ousting := cfg.OnElected, cfg.OnOusting
	cfg.OnElected = func(ctx context.Context, view *leaderelection.TimeView) {
		var wg sync.WaitGroup
		defer wg.Wait()
		f.mu.Lock()
		f.number = view.ElectionNumber()
		f.mu.Unlock()
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
	slice     Slice
	hostPorts []string
	log       *slog.Logger

	mu     sync.Mutex // one of lead's looks, or leave
	number leaderelection.ElectionNumber
}

// lead looks after the slice until the view is over.
func (f *follower) lead(ctx context.Context, view *leaderelection.TimeView) {
	said, failed := "", soon
	for ctx.Err() == nil {
		pause := again
		if err := f.look(ctx, view); err == nil {
			said, failed = "", soon
		} else {
			if pause, failed = failed, min(2*failed, again); ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				f.log.Warn("this process leads, and the Service does not lead to it: the EndpointSlice cannot be written; trying again", "err", err)
			}
		}
		if !view.Clock().SleepFor(ctx, pause) {
			return
		}
	}
}

func (f *follower) look(ctx context.Context, view *leaderelection.TimeView) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !view.ValueInFuture() {
		return nil
	}
	return f.slice.Lead(ctx, view.ElectionNumber(), f.hostPorts)
}

// leave has the slice lead nowhere, before the lease is released.
func (f *follower) leave(ctx context.Context) {
	f.mu.Lock() // the leader's ctx has ended, and lead with it
	defer f.mu.Unlock()
	if err := f.slice.Lead(ctx, f.number, nil); err != nil {
		f.log.Warn("the Service leads to this process until another leads: the EndpointSlice cannot be emptied", "err", err)
	}
}
