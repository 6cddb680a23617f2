package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	election "k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/memgroup"
	"github.com/c8e606e4/leaderelection/shard"
)

// The group whose cost is counted.
const (
	shardMembers = 10
	shardTerm    = 15 * time.Second
	shardTerms   = 8 // that are counted, when all is calm
)

// TestShardCost counts what shards cost the store in calm, in virtual time: a group of package
// shard, as many separate elections, and as many Leases of client-go, all of ten processes.
// What it logs is the table in README.md. Reads, writes and lists count as one each.
func TestShardCost(t *testing.T) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	var last [3]float64
	for _, n := range []int{10, 100, 1000, 10000} {
		pushed, polled := ofGroup(t, n, false), ofGroup(t, n, true)
		t.Logf("%6d shards: shard, pushed %8.1f operations a term", n, pushed)
		t.Logf("%6d shards: shard, polled %8.1f", n, polled)
		if pushed > 3*shardMembers || polled > 8*shardMembers {
			t.Errorf("%d shards cost %v operations a term, and %v polled: more than 3 and 8 for each member", n, pushed, polled)
		}
		if n > 100 {
			continue // ten thousand candidates; a shard's cost is the same as before
		}
		for i, c := range []struct {
			name string
			cost float64
		}{
			{"separate elections, pushed", ofElections(t, n, false)}, {"separate elections, polled", ofElections(t, n, true)}, {"client-go Leases", ofLeases(t, n)},
		} {
			each := c.cost / float64(n)
			t.Logf("%6d shards: %-26s %8.1f, %.2f for each", n, c.name, c.cost, each)
			if last[i] > 0 && (each < last[i]*.8 || each > last[i]*1.2) {
				t.Errorf("%s: a shard costs %.2f of %d, and cost %.2f of fewer: the table goes by its being the same", c.name, each, n, last[i])
			}
			last[i] = each
		}
	}
}

// calm runs f, whose calls of ops count, and returns how many there are in a term after it has
// had time to settle.
func calm(t *testing.T, f func(ctx context.Context, ops *atomic.Int64)) (perTerm float64) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var ops atomic.Int64
		f(ctx, &ops)
		time.Sleep(20 * shardTerm)
		before := ops.Load()
		time.Sleep(shardTerms * shardTerm)
		perTerm = float64(ops.Load()-before) / shardTerms
		cancel()
		time.Sleep(2 * shardTerm) // they release, and end
	})
	return perTerm
}

// counted is a record of which all calls are counted.
func counted(d *memory.Decider, ops *atomic.Int64, polled bool) leaderelection.RaceDecider {
	d = d.Handle()
	d.Inject(func(op memory.Op) memory.Fault {
		if op.Kind != memory.Feed {
			ops.Add(1)
		}
		return memory.Slow(time.Millisecond)(op)
	})
	if polled {
		return d.Polled()
	}
	return d
}

func ofGroup(t *testing.T, shards int, polled bool) float64 {
	return calm(t, func(ctx context.Context, ops *atomic.Int64) {
		var records memgroup.Records
		for i := range shardMembers {
			_, err := shard.Config{
				Store: func(name string) (leaderelection.RaceDecider, error) {
					return counted(records.Of(name), ops, polled), nil
				},
				MemberID: fmt.Sprint("m", i), Shards: shard.Numbered(shards), MaxMoving: shards, TermLength: shardTerm,
				OnOwned: func(ctx context.Context, _ *shard.Owned) error { <-ctx.Done(); return nil },
			}.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func ofElections(t *testing.T, n int, polled bool) float64 {
	return calm(t, func(ctx context.Context, ops *atomic.Int64) {
		for range n {
			record := memory.NewDecider()
			for i := range shardMembers {
				_, err := leaderelection.Config{
					Decider: counted(record, ops, polled), LeaderID: fmt.Sprint("m", i), TermLength: shardTerm,
					OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { <-ctx.Done() },
				}.Start(ctx)
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// ofLeases has client-go's own elector, with the durations of its documentation.
func ofLeases(t *testing.T, n int) float64 {
	return calm(t, func(ctx context.Context, ops *atomic.Int64) {
		for range n {
			record := &lease{}
			for i := range shardMembers {
				e, err := election.NewLeaderElector(election.LeaderElectionConfig{
					Lock:          &lock{record, fmt.Sprint("m", i), ops},
					LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
					Callbacks: election.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
				})
				if err != nil {
					t.Fatal(err)
				}
				go e.Run(ctx)
			}
		}
	})
}

// lease is a Lease in memory, and lock one elector's way to it.
type lease struct {
	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord
}

type lock struct {
	*lease
	id  string
	ops *atomic.Int64
}

func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.ops.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "lease")
	}
	text, err := json.Marshal(l.record)
	r := *l.record
	return &r, text, err
}

func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *lock) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	l.ops.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record != nil && l.record.HolderIdentity != r.HolderIdentity && l.record.HolderIdentity != "" && time.Since(l.record.RenewTime.Time) < shardTerm {
		return apierrors.NewConflict(schema.GroupResource{}, "lease", nil)
	}
	l.record = &r
	return nil
}

func (l *lock) RecordEvent(string) {}
func (l *lock) Identity() string   { return l.id }
func (l *lock) Describe() string   { return "lease" }
