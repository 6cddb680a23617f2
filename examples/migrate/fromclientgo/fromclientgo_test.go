package fromclientgo

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// The program of before leads, and exits when its ctx has ended: in a process of its own.
func TestBefore(t *testing.T) {
	if os.Getenv("BEFORE") != "" {
		ctx, cancel := context.WithCancel(t.Context())
		Before(ctx, &leases{}, "pod", func(context.Context) { cancel() })
		os.Exit(3) // not reached
	}
	child := exec.Command(os.Args[0], "-test.run=^TestBefore$")
	child.Env = append(os.Environ(), "BEFORE=1")
	out, err := child.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the child ended with %v, want exit status 1:\n%s", err, out)
	}
}

// candidate starts run, and returns how to stop it and wait for it.
func candidate(t *testing.T, run func(context.Context)) (stop, wait func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	return cancel, func() { <-done }
}

func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewDecider()
		var working atomic.Value
		work := func(pod string) func(context.Context, *leaderelection.TimeView) {
			return func(ctx context.Context, view *leaderelection.TimeView) {
				working.Store(pod)
				<-ctx.Done()
			}
		}
		stopA, waitA := candidate(t, func(ctx context.Context) { _ = After(ctx, store.Handle(), "a", work("a")) })
		synctest.Wait()
		stopB, waitB := candidate(t, func(ctx context.Context) { _ = After(ctx, store.Handle(), "b", work("b")) })
		time.Sleep(time.Minute) // virtual
		if working.Load() != "a" {
			t.Errorf("%q works, want a", working.Load())
		}
		stopA()
		waitA()
		synctest.Wait()
		if working.Load() != "b" {
			t.Errorf("%q works after a has stopped, want b at once", working.Load())
		}
		stopB()
		waitB()
	})
}

// When AfterOnce has returned, the lease is released: its caller may exit.
func TestAfterOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewDecider()
		broken := errors.New("broken")
		err := AfterOnce(t.Context(), store, "a", func(ctx context.Context, _ *leaderelection.TimeView) error {
			time.Sleep(time.Minute) // virtual
			if e := store.Entry(); e.LeaderID != "a" {
				t.Errorf("while it works the record is %q's", e.LeaderID)
			}
			return broken
		})
		if !errors.Is(err, broken) {
			t.Errorf("AfterOnce: %v", err)
		}
		if e := store.Entry(); !e.Vacant() {
			t.Errorf("AfterOnce has returned, and %q still holds the record", e.LeaderID)
		}
	})
}

// During the roll-out old and bridging pods never work at once, in either order, and a
// bridging pod keeps the old lease until its work has wound down.
func TestBridge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, old := memory.NewDecider(), &leases{}
		var working atomic.Value // the pod that works
		working.Store("")
		begin := func(pod string) {
			if !working.CompareAndSwap("", pod) {
				t.Errorf("%s begins to work, and %s works", pod, working.Load())
			}
		}
		end := func(pod string) { working.CompareAndSwap(pod, "") }
		oldPod := func(pod string) func(context.Context) {
			return func(ctx context.Context) {
				underOldLease(ctx, old, pod, func(ctx context.Context) { begin(pod); <-ctx.Done(); end(pod) })
			}
		}
		const windDown = 5 * time.Second

		stop1, wait1 := candidate(t, oldPod("old-1"))
		time.Sleep(10 * time.Second) // virtual, as all here
		stopNew, waitNew := candidate(t, func(ctx context.Context) {
			_ = Bridge(ctx, store, old, "new-1", func(ctx context.Context, view *leaderelection.TimeView) {
				begin("new-1")
				<-ctx.Done()
				time.Sleep(windDown)
				if old.holder() != "new-1" {
					t.Errorf("the old lease is %q's while new-1 still winds down", old.holder())
				}
				if !view.ValueInFuture() {
					t.Error("the new lease has run out while new-1 still winds down")
				}
				end("new-1")
			})
		})
		time.Sleep(time.Minute)
		if e := store.Entry(); e.LeaderID != "new-1" || working.Load() != "old-1" {
			t.Errorf("the new record is %q's, and %q works: want new-1 to lead and old-1 to work", e.LeaderID, working.Load())
		}
		stop1()
		wait1()
		time.Sleep(5 * time.Second)
		if working.Load() != "new-1" {
			t.Errorf("old-1 has stopped, and %q works", working.Load())
		}
		stop2, wait2 := candidate(t, oldPod("old-2")) // rolled back
		time.Sleep(time.Minute)
		stopNew()
		time.Sleep(windDown / 2)
		if working.Load() != "new-1" {
			t.Error("new-1 does not wind down")
		}
		waitNew()
		time.Sleep(5 * time.Second)
		if working.Load() != "old-2" {
			t.Errorf("new-1 has stopped, and %q works", working.Load())
		}
		stop2()
		wait2()
	})
}

// leases is as much of an API server as one Lease needs, in memory.
type leases struct {
	coordination.LeaseInterface // nil: nothing else is called

	mu      sync.Mutex
	lease   *v1.Lease
	version int
}

var resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (l *leases) Leases(string) coordination.LeaseInterface { return l }

func (l *leases) Get(_ context.Context, name string, _ metav1.GetOptions) (*v1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	return l.lease.DeepCopy(), nil
}

func (l *leases) Create(_ context.Context, lease *v1.Lease, _ metav1.CreateOptions) (*v1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease != nil {
		return nil, apierrors.NewAlreadyExists(resource, lease.Name)
	}
	return l.put(lease), nil
}

func (l *leases) Update(_ context.Context, lease *v1.Lease, _ metav1.UpdateOptions) (*v1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil || lease.ResourceVersion != l.lease.ResourceVersion {
		return nil, apierrors.NewConflict(resource, lease.Name, nil)
	}
	return l.put(lease), nil
}

func (l *leases) put(lease *v1.Lease) *v1.Lease {
	l.version++
	l.lease = lease.DeepCopy()
	l.lease.ResourceVersion = strconv.Itoa(l.version)
	return l.lease.DeepCopy()
}

// holder is who holds the lease.
func (l *leases) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil || l.lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.lease.Spec.HolderIdentity
}
