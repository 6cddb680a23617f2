package fromclientgo

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clientgo "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/c8e606e4/leaderelection"
)

// Bridge runs work in the pod that leads the new election and holds the old lease.
func Bridge(ctx context.Context, decider leaderelection.RaceDecider, client coordination.LeasesGetter, pod string,
	work func(context.Context, *leaderelection.TimeView)) error {
	return leaderelection.Config{
		Decider:    decider,
		LeaderID:   pod,
		TermLength: 15 * time.Second,
		OnElected: func(leading context.Context, view *leaderelection.TimeView) {
			for leading.Err() == nil {
				underOldLease(leading, client, pod, func(ctx context.Context) { work(ctx, view) })
			}
		},
	}.Acquire(ctx)
}

// underOldLease runs work while the old lease is held, and keeps it until work has
// returned. work's ctx ends when either leadership does.
func underOldLease(leading context.Context, client coordination.LeasesGetter, pod string, work func(context.Context)) {
	holding, release := context.WithCancel(context.WithoutCancel(leading))
	held := make(chan context.Context, 1)
	var old sync.WaitGroup
	old.Go(func() {
		clientgo.RunOrDie(holding, clientgo.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "report"},
				Client:     client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: pod},
			},
			LeaseDuration:   15 * time.Second,
			RenewDeadline:   10 * time.Second,
			RetryPeriod:     2 * time.Second,
			ReleaseOnCancel: true,
			Callbacks: clientgo.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { held <- ctx },
				OnStoppedLeading: func() {}, // the end of ctx says so
			},
		})
	})
	defer old.Wait()
	defer release()
	select {
	case <-leading.Done():
	case ctx := <-held:
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(leading, cancel)()
		work(ctx)
	}
}
