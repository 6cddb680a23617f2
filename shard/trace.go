package shard

import (
	"time"

	"github.com/c8e606e4/leaderelection/internal/loop"
)

// Trace has hooks that a member calls. Use it for metrics, spans and tests; see packages leotel and
// leprom. Every hook may be nil. Hooks are called one at a time, in order, by a goroutine that
// the member does not wait for. A slow hook delays only later hooks. If a hook is stuck and more
// than ten thousand events wait, the oldest are dropped.
type Trace struct {
	// Owns is called when the member has come to own a shard.
	Owns func(Owns)
	// LetGo is called when the member owns a shard no more.
	LetGo func(LetGo)
	// Assignment is called for each newer assignment that the member has read.
	Assignment func(*Assignment)
}

// JoinTraces returns a Trace that calls the hooks of all traces, in their order. A nil Trace has no
// hooks.
func JoinTraces(traces ...*Trace) *Trace {
	all := &Trace{}
	for _, t := range traces {
		if t == nil {
			continue
		}
		all.Owns = loop.InTurn(all.Owns, t.Owns)
		all.LetGo = loop.InTurn(all.LetGo, t.LetGo)
		all.Assignment = loop.InTurn(all.Assignment, t.Assignment)
	}
	return all
}

// Owns describes a shard that a member has come to own, for Trace.Owns.
type Owns struct {
	Owned *Owned
	Time  time.Time // by the member's clock
}

// LetGo describes a shard that a member no longer owns, for Trace.LetGo.
type LetGo struct {
	Owned *Owned
	// Cause is the cause of the shard's ctx: ErrMoved, ErrSetBack, ErrFailed, or why the
	// session has ended.
	Cause error
	// Asked is when OnOwned's ctx was cancelled, and Time when the shard's view had ended, both
	// by the member's clock. They are equal if the session has ended.
	Asked, Time time.Time
}

// maxEvents is how many events may wait for a slow hook.
const maxEvents = 10_000

// tellOwns, tellLetGo and tellAssignment call their hook, if there is one.
func (m *Member) tellOwns(o *Owned) {
	if t := m.cfg.ShardTrace; t != nil && t.Owns != nil {
		e := Owns{o, m.cfg.Clock.Now()}
		m.hooks.Add(func() { t.Owns(e) })
	}
}

func (m *Member) tellLetGo(e LetGo) {
	if t := m.cfg.ShardTrace; t != nil && t.LetGo != nil {
		m.hooks.Add(func() { t.LetGo(e) })
	}
}

func (m *Member) tellAssignment(a *assignment) {
	if t := m.cfg.ShardTrace; t != nil && t.Assignment != nil {
		m.hooks.Add(func() { t.Assignment(a.public()) })
	}
}
