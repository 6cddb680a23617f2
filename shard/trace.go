package shard

import (
	"sync"
	"time"
)

// Trace is told what a member does, for metrics, spans and tests. Every hook may be nil.
// They are called one at a time, in order, by a goroutine that the member does not wait for:
// a slow hook delays only later ones, and if one is stuck, the oldest of more than ten
// thousand waiting events are dropped. See packages leotel and leprom.
type Trace struct {
	// Owns is called when the member has come to own a shard.
	Owns func(Owns)
	// LetGo is called when the member owns a shard no more.
	LetGo func(LetGo)
	// Assignment is called for each newer assignment that the member has read.
	Assignment func(*Assignment)
}

// Owns is a shard that a member has come to own.
type Owns struct {
	Owned *Owned
	Time  time.Time // by the member's clock
}

// LetGo is a shard that a member owns no more.
type LetGo struct {
	Owned *Owned
	// Cause is that of the shard's ctx: ErrMoved, ErrSetBack, or why the session has ended.
	Cause error
	// Asked is when OnOwned was told to end, and Time when the shard's view had ended, both
	// by the member's clock. They are one if the session has ended.
	Asked, Time time.Time
}

// maxEvents is how many events wait for a hook that is slow.
const maxEvents = 10_000

// tracer calls the hooks.
type tracer struct {
	mu      sync.Mutex
	waiting []func()
	ended   bool
	more    chan struct{}
}

func newTracer() *tracer { return &tracer{more: make(chan struct{}, 1)} }

// post has f called, after those before.
func (t *tracer) post(f func()) {
	t.mu.Lock()
	if len(t.waiting) == maxEvents {
		t.waiting = t.waiting[1:]
	}
	t.waiting = append(t.waiting, f)
	t.mu.Unlock()
	t.wake()
}

func (t *tracer) wake() {
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// end has run return when all was told.
func (t *tracer) end() {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.wake()
}

func (t *tracer) run() {
	for {
		t.mu.Lock()
		todo, ended := t.waiting, t.ended
		t.waiting = nil
		t.mu.Unlock()
		for _, f := range todo {
			f()
		}
		if len(todo) == 0 && ended {
			return
		}
		if len(todo) == 0 {
			<-t.more
		}
	}
}

// tellOwns, tellLetGo and tellAssignment post what there is a hook for.
func (m *Member) tellOwns(o *Owned) {
	if t := m.cfg.ShardTrace; t != nil && t.Owns != nil {
		e := Owns{o, m.cfg.Clock.Now()}
		m.tracer.post(func() { t.Owns(e) })
	}
}

func (m *Member) tellLetGo(o *Owned, cause error) {
	if t := m.cfg.ShardTrace; t != nil && t.LetGo != nil {
		now := m.cfg.Clock.Now()
		e := LetGo{o, cause, o.asked, now}
		if e.Asked.IsZero() {
			e.Asked = now
		}
		m.tracer.post(func() { t.LetGo(e) })
	}
}

func (m *Member) tellAssignment(a *assignment) {
	if t := m.cfg.ShardTrace; t != nil && t.Assignment != nil {
		m.tracer.post(func() { t.Assignment(a.public()) })
	}
}
