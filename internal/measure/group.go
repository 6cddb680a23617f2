package measure

import (
	"errors"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// Group is what a member of a group of package shard knows of it. Its methods may be called
// by any number of goroutines at once. Nothing here has a type of that package, which is a
// module of its own: the root's requires no other.
type Group struct {
	clock clocks.Clock
	why   ShardErrors

	mu   sync.Mutex
	now  GroupSnapshot
	seen time.Time // since when the assignment is known
}

// GroupSnapshot is a Group at one moment.
type GroupSnapshot struct {
	Owned int // shards that this member owns
	// By the newest assignment known: how many shards have an owner, have none, and are on
	// the way from one to another.
	Placed, Unowned, Moving int
	Failing                 int // with how many some member has failed, within the last hour
	Version                 uint64
	Known                   bool          // there is an assignment
	Without                 time.Duration // for how long shards had no owner, added up over all shards
}

// ShardErrors are package shard's errors of these names.
type ShardErrors struct{ Moved, SetBack, Failed error }

// NewGroup returns a Group of which nothing is known. A nil clock is the system's.
func NewGroup(clock clocks.Clock, why ShardErrors) *Group {
	if clock == nil {
		clock = clocks.System()
	}
	return &Group{clock: clock, why: why}
}

// Now returns what is known now.
func (g *Group) Now() GroupSnapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count()
	return g.now
}

// count adds up the time that has passed.
func (g *Group) count() {
	now := g.clock.Now()
	if passed := now.Sub(g.seen); !g.seen.IsZero() && passed > 0 {
		g.now.Without += passed * time.Duration(g.now.Unowned)
	}
	g.seen = now
}

// Owns is Trace.Owns.
func (g *Group) Owns() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now.Owned++
}

// LetGo is Trace.LetGo. It returns the cause as one of GroupCauses.
func (g *Group) LetGo(cause error) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now.Owned--
	switch {
	case errors.Is(cause, g.why.Moved):
		return "moved"
	case errors.Is(cause, g.why.SetBack):
		return "set_back"
	case errors.Is(cause, g.why.Failed):
		return "failed"
	}
	return causeOf(cause)
}

// GroupCauses are the words for why a shard was let go: it is to be another's, the store was
// set back, OnOwned failed, or the session has ended, for one of Causes.
func GroupCauses() []string { return append(Causes(), "moved", "set_back", "failed") }

// Assignment is Trace.Assignment. A *shard.Assignment is one.
func (g *Group) Assignment(a interface {
	Version() leaderelection.ElectionNumber
	Len() int
	Totals() (unowned, moving, failing int)
}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count()
	g.now.Unowned, g.now.Moving, g.now.Failing = a.Totals()
	g.now.Placed = a.Len() - g.now.Unowned - g.now.Moving
	g.now.Known, g.now.Version = true, uint64(a.Version())
}
