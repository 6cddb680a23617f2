// Package fromclientgo is the code of the guide from client-go's leaderelection.
package fromclientgo

import (
	"context"
	"log"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Before runs work in the pod that leads, and exits when it has lost the lease.
func Before(ctx context.Context, client coordination.LeasesGetter, pod string, work func(context.Context)) {
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "report"},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: pod},
		},
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: work,
			OnStoppedLeading: func() { os.Exit(1) },
			OnNewLeader:      func(id string) { log.Print("leader: ", id) },
		},
	})
}
