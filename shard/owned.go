package shard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/route/viewhook"
)

// Causes of the end of a shard's ctx, for context.Cause. If the session has ended, context.Cause
// returns the cause of that end: see the errors of package leaderelection.
var (
	// ErrMoved means that the shard must go to another member, or is no longer one of the
	// group's shards.
	ErrMoved = errors.New("shard: the shard is to be let go")
	// ErrSetBack means that the store has lost writes that it had acknowledged.
	ErrSetBack = errors.New("shard: the store was set back")
	// ErrFailed means that OnOwned has returned an error, which is wrapped as well. The shard
	// is tried elsewhere.
	ErrFailed = errors.New("shard: OnOwned failed")
)

// Owned is one shard that this member owns, or has owned. OnOwned gets it: ask it before each act
// on the shard. Its methods may be called by any number of goroutines at once. A zero Owned is
// over.
type Owned struct {
	name    string
	of      int // how many numbered shards there are; 0: they have names
	token   uint64
	session SessionID
	view    *leaderelection.TimeView
	ctx     context.Context // OnOwned's
	over    atomic.Bool
	inside  atomic.Int64 // how many requests a gate has let in; negative: it lets none in any more
	emptied func()       // called when the last of them has left after shut

	// The session's loop only:
	index   int
	cancel  context.CancelCauseFunc
	begin   func()    // runs OnOwned; nil: it was called
	beginBy time.Time // when it must have been possible to call it
	err     error     // what OnOwned has returned
	failure error     // why this member cannot work on it; nil: it can
	running bool      // OnOwned has not returned
	asked   time.Time // when OnOwned was told to end, by the member's clock
	drainBy time.Time // when it is given up; zero while it is not asked to end
}

// Name returns the shard's name.
func (o *Owned) Name() string { return o.name }

// Of returns the number of numbered shards in the group, or 0 if the shards have names. Pass it to
// [ForKey] to find out which keys belong to this shard.
func (o *Owned) Of() int { return o.of }

// ElectionNumber returns the shard's fencing token, greater than the token of every owner before.
// Send it with each act. Tokens of different shards say nothing about each other.
func (o *Owned) ElectionNumber() leaderelection.ElectionNumber {
	return leaderelection.ElectionNumber(o.token)
}

// ValueInFuture reports whether this member may act on the shard now. Call it immediately before
// each act. It is never true for two owners of one shard at the same instant. Once false, it
// stays false.
func (o *Owned) ValueInFuture() bool { return !o.over.Load() && o.view.ValueInFuture() }

// Get returns until when this member may act on the shard if the session is not extended, by the
// member's clock. It returns the zero time once that is over.
func (o *Owned) Get() time.Time {
	if !o.ValueInFuture() {
		return time.Time{}
	}
	return o.view.Get()
}

// Context returns OnOwned's ctx. It ends when the shard must be let go. Begin nothing new then. The
// member may still act on the shard until OnOwned, and the requests and calls that lehttp.RequireOwner and
// the interceptors of legrpc have let in, have returned, for at most DrainTimeout.
func (o *Owned) Context() context.Context {
	if o.ctx == nil {
		return ended
	}
	return o.ctx
}

// ended is a ctx that has ended, such as that of a zero Owned.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Clock returns the clock by which Get counts.
func (o *Owned) Clock() clocks.Clock { return o.view.Clock() }

// Gate returns the right to write of the shard's owner, for fence.WithGate. Group is the group's
// name, as the resource knows it. Each shard has its own tokens, so it is fenced under its own
// name: the group's name, a slash, and the shard's name. The resource has a Guard, or a row, for
// each, such as fence.NewGuard("orders/7", 0).
func (o *Owned) Gate(group string) fence.Gate {
	return fence.Gate{View: o, Election: group + "/" + o.name}
}

// Owners says which shards this process owns. Routers and guards ask it. A [*Member] is one.
type Owners interface {
	// Shard returns a shard, and whether this process may act on it now. The name may be a
	// [KeyName]: then only if the group has that number of shards.
	Shard(name string) (*Owned, bool)
}

type ownedKey struct{}

// WithOwned returns a ctx that carries o, for [OwnedFrom]. OnOwned's ctx carries it already. So
// does the ctx that a handler gets from lehttp.RequireOwner and from the interceptors of legrpc.
func WithOwned(ctx context.Context, o *Owned) context.Context {
	return context.WithValue(ctx, ownedKey{}, o)
}

// OwnedFrom returns the shard that ctx belongs to, or nil. Use its Gate to fence writes to other
// resources.
func OwnedFrom(ctx context.Context) *Owned {
	o, _ := ctx.Value(ownedKey{}).(*Owned)
	return o
}

// shutBit is in Owned.inside when nothing may enter any more.
const shutBit = math.MinInt64

func init() { //nolint:gochecknoinits // the gates of lehttp and legrpc count by it; users should not need to
	viewhook.EnterShard = func(o any) bool { return o.(*Owned).enter() } //nolint:forcetypeassert // the hook says so
	viewhook.LeaveShard = func(o any) { o.(*Owned).leave() }             //nolint:forcetypeassert // the hook says so
}

// enter counts a request that was let in, unless the shard is being let go.
func (o *Owned) enter() bool {
	if o.ctx == nil {
		return false // the zero value
	}
	for {
		n := o.inside.Load()
		if n < 0 {
			return false
		}
		if o.inside.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave ends a request that has entered.
func (o *Owned) leave() {
	if o.inside.Add(-1) == shutBit {
		o.emptied()
	}
}

// shut lets nothing enter any more.
func (o *Owned) shut() {
	for {
		n := o.inside.Load()
		if n < 0 || o.inside.CompareAndSwap(n, n+shutBit) {
			return
		}
	}
}

// failed returns the cause of the end of a shard on which this member cannot work.
func (o *Owned) failed() error { return fmt.Errorf("%w: %w", ErrFailed, o.failure) }

// busy reports whether anything works on a shard that was shut: OnOwned, or a request.
func (o *Owned) busy() bool { return o.running || o.inside.Load() != shutBit }

// start calls OnOwned, once, unless the shard is being let go.
func (o *Owned) start() {
	if begin := o.begin; begin != nil && o.drainBy.IsZero() {
		o.begin = nil
		begin()
	}
}

// ended takes in that a callback has returned.
func (s *sitting) ended(o *Owned) {
	o.running = false
	delete(s.m.calls, o.name)
	if s.owned[o.index] == o {
		if o.drainBy.IsZero() && o.err != nil {
			s.fail(o.index, o, o.err)
		}
		s.settle(o.index, o)
	}
	s.m.mu.Lock()
	next := s.m.owned[o.name]
	s.m.mu.Unlock()
	if next != nil && next != o {
		next.start()
	}
}

// endedToo takes in the other callbacks that have returned. So a member that lets go of a thousand
// shards at once writes that once.
func (s *sitting) endedToo() {
	for {
		select {
		case o := <-s.m.returned:
			s.ended(o)
		default:
			return
		}
	}
}

// settle frees a shard that is to be let go, if nothing works on it any more.
func (s *sitting) settle(i int, o *Owned) {
	if !o.drainBy.IsZero() && !o.busy() {
		s.free(i, o)
	}
}

// free ends a shard's view. After that, say puts on record that the shard was let go.
func (s *sitting) free(i int, o *Owned) {
	cause := s.cause()
	if o.failure != nil {
		cause = o.failed()
		text := strings.ToValidUTF8(o.failure.Error(), "\uFFFD")
		if len(text) > maxFailure {
			text = strings.ToValidUTF8(text[:maxFailure], "") + "…"
		}
		s.failed[o.name] = text
	}
	delete(s.owned, i)
	s.drop(o, cause)
	s.unsaid[o.name] = o.token
}

// maxFailure is how many bytes of an error a record keeps.
const maxFailure = 120

// fail begins to let a shard go on which this member cannot work, so that it is tried elsewhere.
func (s *sitting) fail(i int, o *Owned, err error) {
	s.m.log(slog.LevelWarn, "OnOwned failed; the shard is let go for another member to try", "shard", o.name, "token", o.token, "err", err)
	o.failure = err
	s.ask(o, o.failed())
	s.settle(i, o)
}

// say puts on record which shards were let go since its last call.
func (s *sitting) say() {
	if len(s.unsaid) == 0 && !s.leaving {
		return
	}
	letGo := maps.Clone(s.letGo)
	maps.Copy(letGo, s.unsaid)
	clear(s.unsaid)
	s.announce(letGo)
}

// announce makes the seat's record list the shards that were let go, if it does not yet.
func (s *sitting) announce(letGo map[string]uint64) {
	s.letGo = s.fitting(letGo)
	maps.DeleteFunc(s.failed, func(name, _ string) bool { return s.letGo[name] == 0 })
	info := s.m.info()
	info.Leaving, info.LetGo, info.Failed = s.leaving, s.letGo, s.failed
	text, err := json.Marshal(info)
	if err == nil && !bytes.Equal(text, s.said) {
		s.said = text
		err = s.tell(s.m.cfg.HostPort, text)
	}
	if err != nil {
		s.m.log(slog.LevelError, "the shards that were let go cannot be put on record", "err", err)
	}
}

// maxLetGo is how many bytes of a seat's record may list the shards that were let go.
const maxLetGo = 64 << 10

// fitting returns as many of the shards that were let go as a seat's record has room for. Those
// that are on record already come first. When the assignment no longer names them (rule 11),
// apply puts the rest on record.
func (s *sitting) fitting(letGo map[string]uint64) map[string]uint64 {
	room := min(maxLetGo, s.m.cfg.MaxAssignment/2)
	names := slices.Sorted(maps.Keys(letGo))
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(s.letGo[b], s.letGo[a]) // 0 if it is not said yet
	})
	said := map[string]uint64{}
	for _, name := range names {
		text, _ := json.Marshal(name) // a string's never fails
		why, _ := json.Marshal(s.failed[name])
		if room -= len(text) + len(`:9223372036854775807,`) + len(text) + len(why); room < 0 && len(said) > 0 {
			break
		}
		said[name] = letGo[name]
	}
	return said
}
