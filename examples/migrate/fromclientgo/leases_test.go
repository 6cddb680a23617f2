package fromclientgo

import (
	"context"
	"strconv"
	"sync"

	v1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

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
