// Package memgroup keeps the records of a group of package shard in memory, for tests.
package memgroup

import (
	"sync"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Records are those of one group. The zero value is a new group.
type Records struct {
	mu  sync.Mutex
	all map[string]*memory.Decider
}

// Of returns the record of a name.
func (r *Records) Of(name string) *memory.Decider {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*memory.Decider{}
	}
	if r.all[name] == nil {
		r.all[name] = memory.NewDecider()
	}
	return r.all[name]
}

// Store is a shard.Config's: it returns a handle on the record of a name.
func (r *Records) Store(name string) (leaderelection.RaceDecider, error) {
	return r.Of(name).Handle(), nil
}

// With is Store for one that has these faults, or none if nil.
func (r *Records) With(faults memory.Faults) func(name string) (leaderelection.RaceDecider, error) {
	return func(name string) (leaderelection.RaceDecider, error) {
		d := r.Of(name).Handle()
		d.Inject(faults)
		return d, nil
	}
}
