package kubernetes

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

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
