package shard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// Why the ctx of a shard has ended, by context.Cause. When the session has ended it is the
// cause of that: see the errors of package leaderelection.
var (
	// ErrMoved: the shard is asked to go to another member, or is not one of the group's
	// any more.
	ErrMoved = errors.New("shard: the shard is to be let go")
	// ErrSetBack: the store has lost what it had acknowledged.
	ErrSetBack = errors.New("shard: the store was set back")
)

// Owned is one shard of which this member is the owner, or was. Its methods may be called
// by any number of goroutines at once.
type Owned struct {
	name    string
	token   uint64
	session SessionID
	view    *leaderelection.TimeView
	ctx     context.Context // OnOwned's
	over    atomic.Bool

	// The session's loop only:
	index   int
	cancel  context.CancelCauseFunc
	begin   func()    // runs OnOwned; nil: it was called
	running bool      // OnOwned has not returned
	asked   time.Time // when OnOwned was told to end, by the member's clock
	drainBy time.Time // when it is given up; zero while it is not asked to end
}

// Name returns the shard's name.
func (o *Owned) Name() string { return o.name }

// Token returns the shard's fencing token: greater than that of every owner before.
// Tokens of different shards say nothing about each other.
func (o *Owned) Token() leaderelection.ElectionNumber {
	return leaderelection.ElectionNumber(o.token)
}

// Session returns the session that owns the shard.
func (o *Owned) Session() SessionID { return o.session }

// ValueInFuture reports whether this member may act on the shard at this moment. Ask it
// immediately before each act. Of two owners of one shard, never both are told true at
// the same instant. Once false, it stays false.
func (o *Owned) ValueInFuture() bool { return !o.over.Load() && o.view.ValueInFuture() }

// Get returns until when the shard may be acted on unless the session is extended, by
// the member's clock, or the zero time when that is over.
func (o *Owned) Get() time.Time {
	if !o.ValueInFuture() {
		return time.Time{}
	}
	return o.view.Get()
}

// Context returns OnOwned's ctx: it ends when the shard is to be let go, while it may
// still be acted on for as long as OnOwned takes to return. Begin nothing new then.
func (o *Owned) Context() context.Context { return o.ctx }

// Clock returns the clock that Get is by.
func (o *Owned) Clock() clocks.Clock { return o.view.Clock() }

// start calls OnOwned, once.
func (o *Owned) start() {
	if begin := o.begin; begin != nil {
		o.begin = nil
		begin()
	}
}
