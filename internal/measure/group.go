package measure

import (
	"errors"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/shard"
)

// Group is what a member of a group of package shard knows of it. Its methods may be called
// by any number of goroutines at once.
type Group struct {
	clock clocks.Clock

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
	Version                 uint64
	Known                   bool          // there is an assignment
	Without                 time.Duration // for how long shards had no owner, added up over all shards
}

// NewGroup returns a Group of which nothing is known. A nil clock is the system's.
func NewGroup(clock clocks.Clock) *Group {
	if clock == nil {
		clock = clocks.System()
	}
	return &Group{clock: clock}
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
func (g *Group) Owns(shard.Owns) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now.Owned++
}

// LetGo is Trace.LetGo. It returns why, as one of GroupCauses.
func (g *Group) LetGo(e shard.LetGo) (cause string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now.Owned--
	switch {
	case errors.Is(e.Cause, shard.ErrMoved):
		return "moved"
	case errors.Is(e.Cause, shard.ErrSetBack):
		return "set_back"
	}
	return causeOf(e.Cause)
}

// GroupCauses are the words for why a shard was let go: it is to be another's, the store was
// set back, or the session has ended, for one of Causes.
func GroupCauses() []string { return append(Causes(), "moved", "set_back") }

// Assignment is Trace.Assignment.
func (g *Group) Assignment(a *shard.Assignment) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count()
	g.now.Placed, g.now.Unowned, g.now.Moving = 0, 0, 0
	g.now.Known, g.now.Version = true, uint64(a.Version())
	for i := range a.Len() {
		switch _, owner := a.Shard(i); {
		case owner.Session == (shard.SessionID{}):
			g.now.Unowned++
		case owner.Moving:
			g.now.Moving++
		default:
			g.now.Placed++
		}
	}
}

// ShardTrace returns the hooks, each called before that of next, which may be nil. LetGo
// is called with the cause as one of GroupCauses as well.
func (g *Group) ShardTrace(owns func(shard.Owns), letGo func(e shard.LetGo, cause string), next *shard.Trace) *shard.Trace {
	var n shard.Trace
	if next != nil {
		n = *next
	}
	return &shard.Trace{
		Owns:       After(func(e shard.Owns) { g.Owns(e); owns(e) }, n.Owns),
		LetGo:      After(func(e shard.LetGo) { letGo(e, g.LetGo(e)) }, n.LetGo),
		Assignment: After(g.Assignment, n.Assignment),
	}
}
