package main

import (
	"context"
	"io"
	"net/http"

	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const namespace = "bench"

// counting counts HTTP requests.
type counting struct {
	http.RoundTripper
	s seat
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.s.Ops.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// leases is a client of the Leases of an API server. Its connections are client-go's, one
// for all clients of a process.
type leases struct {
	*coordinationclient.CoordinationV1Client
}

func (leases) Close() error { return nil }

func leaseClient(s seat) (leases, error) {
	c, err := coordinationclient.NewForConfig(&rest.Config{
		Host:            "https://" + s.Addr,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},                // on loopback
		ContentConfig:   rest.ContentConfig{ContentType: "application/json"}, // which our server understands
		QPS:             -1,                                                  // nothing waits in the client
		WrapTransport:   func(t http.RoundTripper) http.RoundTripper { return counting{t, s} },
	})
	return leases{c}, err
}

// clientGo contests as the example in the package's documentation does.
func clientGo(releaseOnCancel bool) func(context.Context, seat, func(belief)) error {
	return func(ctx context.Context, s seat, lead func(belief)) error {
		klog.LogToStderr(false)
		klog.SetOutput(io.Discard)
		client, done, err := client(s, leaseClient)
		if err != nil {
			return err
		}
		defer done()
		const renew, retry, lease = 10, 2, 15 // of its documentation, in seconds
		var e *leaderelection.LeaderElector
		e, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  meta.ObjectMeta{Name: s.Key, Namespace: namespace},
				Client:     client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: s.ID},
			},
			LeaseDuration:   s.Term,
			RenewDeadline:   s.Term * renew / lease,
			RetryPeriod:     s.Term * retry / lease,
			ReleaseOnCancel: releaseOnCancel,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					lead(belief{
						told:  func() bool { return ctx.Err() == nil },
						asked: e.IsLeader,
					})
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return err
		}
		e.Run(ctx)
		return nil
	}
}
