package leaderelection

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/loop"
	"github.com/c8e606e4/leaderelection/internal/route/viewhook"
)

// TimeView reports whether a leader may act, and until when. Ask it before each act.
//
// A view ends MaxClockSkew before the term does. Each extension that the store has confirmed
// moves the end on. A view is over as soon as either the wall clock or the monotonic clock
// reaches the end. So neither a clock that is set back nor a suspended machine can lengthen
// it. Once seen over, a view is over for ever. It belongs to one leadership, so work left over
// from an earlier leadership stays fenced off when its process is elected again.
//
// The views of successive leaders never overlap in true time. All methods may be called by
// any number of goroutines at once, and none of them blocks.
//
// A copy is the same view and ends with it. A zero TimeView is over. Package viewtest makes
// views for tests of code that takes one.
type TimeView struct{ *view }

// view is what a TimeView and its copies share.
type view struct {
	clock  *timekeeper
	number ElectionNumber
	state  atomic.Pointer[viewState]
	inside atomic.Int64 // how much work has entered; negative: none may any more, see shut
	empty  func()       // called once, when the last of it has left after shut
}

// shutBit is in view.inside when nothing may enter any more.
const shutBit = math.MinInt64

// viewState is one immutable position of a view's end.
type viewState struct {
	viewEnd
	over bool // the latch
}

// init lets package viewtest make views whose end a test sets.
func init() { //nolint:gochecknoinits // package viewtest may not be imported here, and what it needs is not exported
	viewhook.Make = func(clock clocks.Clock, number uint64) (any, func(time.Time)) {
		v := newView(newTimekeeper(clock), ElectionNumber(number))
		return v, v.set
	}
	viewhook.Enter = func(v any) bool { return v.(*TimeView).enter() } //nolint:forcetypeassert // the hook says so
	viewhook.Leave = func(v any) { v.(*TimeView).leave() }             //nolint:forcetypeassert // the hook says so
}

// enter counts work that begins under the view, unless the view was shut.
func (t *TimeView) enter() bool {
	if t.none() {
		return false
	}
	for {
		n := t.inside.Load()
		if n < 0 {
			return false
		}
		if t.inside.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave ends work that has entered.
func (t *TimeView) leave() {
	if t.inside.Add(-1) == shutBit {
		t.empty()
	}
}

// shut lets nothing enter any more. It reports whether work is inside: then empty is called when the
// last of it has left. Call it once.
func (t *TimeView) shut(empty func()) bool {
	t.empty = empty
	return t.inside.Add(shutBit) > shutBit
}

// newView returns a campaign's view. It is over until it is first moved.
func newView(clock *timekeeper, number ElectionNumber) *TimeView {
	v := &TimeView{&view{clock: clock, number: number}}
	v.state.Store(&viewState{over: true})
	return v
}

type viewKey struct{}

// WithView returns a ctx that carries view, for [ViewFrom]. Use it to hand the view to work that
// takes a ctx. A campaign's ctx for OnElected and OnOusting carries the view already. So does
// the ctx that a handler gets from lehttp.RequireLeader and from the interceptors of legrpc.
func WithView(ctx context.Context, view *TimeView) context.Context {
	return context.WithValue(ctx, viewKey{}, view)
}

// ViewFrom returns the view of the leadership that the work under ctx belongs to. Take the
// fencing token from it, not from [Campaign.View]: that is the view of the newest leadership,
// which may have begun later than the work. If ctx belongs to no leadership, ViewFrom returns
// a view that is over and has no number. It is never nil.
func ViewFrom(ctx context.Context) *TimeView {
	if v, _ := ctx.Value(viewKey{}).(*TimeView); v != nil {
		return v
	}
	return noView
}

// noView belongs to no leadership, and is always over.
var noView = newView(newTimekeeper(clocks.System()), NoElections)

// Get returns the end of the view as a wall time: the term's expiry less MaxClockSkew. Use it
// for display. It stays the same after the end: ask ValueInFuture whether the leader may act.
// It is the zero time if the view never had an end.
func (t *TimeView) Get() time.Time {
	if t.none() {
		return time.Time{}
	}
	return t.state.Load().wall
}

// none reports whether t belongs to no leadership.
func (t *TimeView) none() bool { return t == nil || t.view == nil }

// Clock returns the clock that the view is measured by. Use it to sleep between acts. Never nil.
func (t *TimeView) Clock() clocks.Clock {
	if t.none() {
		return clocks.System()
	}
	return t.clock.Clock
}

// ElectionNumber returns the fencing token: the number of the leadership that the view belongs
// to, or NoElections if it belongs to none. Send it with every act.
func (t *TimeView) ElectionNumber() ElectionNumber {
	if t.none() {
		return NoElections
	}
	return t.number
}

// ValueInFuture reports whether the leader may act now. Call it immediately before each act.
// It costs little more than time.Now, and does not allocate.
func (t *TimeView) ValueInFuture() bool {
	if t.none() {
		return false
	}
	for {
		s := t.state.Load()
		if s.over {
			return false
		}
		if t.before(s) {
			return true
		}
		if t.latch(s) {
			return false
		}
	}
}

// latch makes the view over for ever, unless its end was moved on since s was loaded.
func (t *TimeView) latch(s *viewState) bool {
	end := *s
	end.over = true
	return t.state.CompareAndSwap(s, &end)
}

// latched reports whether somebody has seen the view over. It does not look at the clock.
func (t *TimeView) latched() bool { return t.state.Load().over }

// before reports whether both clocks are still before the end s.
func (t *TimeView) before(s *viewState) bool {
	return s.live(t.clock.now())
}

// set moves the end of a test's view to v, in either direction, even if the view was over.
func (t *TimeView) set(v time.Time) {
	now := t.clock.now()
	left := max(v.Round(0).Sub(now.wall), -MaxTermLength) // how long ago does not matter
	s := &viewState{viewEnd: viewEnd{wall: v.Round(0), mono: now.mono + left}}
	s.over = !t.before(s)
	t.state.Store(s)
}

// begin sets the first end of a campaign's view, and reports whether it is in the future. Call it only before the view
// is handed out.
func (t *TimeView) begin(end viewEnd) bool {
	t.state.Store(&viewState{viewEnd: end})
	return t.ValueInFuture()
}

// move sets the end of a live view, and reports whether the view is still alive. A view that is over stays over.
func (t *TimeView) move(end viewEnd) bool {
	for {
		if !t.ValueInFuture() {
			return false
		}
		old := t.state.Load()
		if old.over {
			return false
		}
		if old.viewEnd == end || t.state.CompareAndSwap(old, &viewState{viewEnd: end}) {
			return t.ValueInFuture()
		}
	}
}

// end ends the view now, for ever.
func (t *TimeView) end() {
	for {
		if s := t.state.Load(); s.over || t.latch(s) {
			return
		}
	}
}

// The shortest pauses that any setting leads to: between two extensions, and
// between two polls.
const (
	minInterval = time.Millisecond
	minPoll     = 10 * time.Millisecond
)

// maxSlice is the longest time that a leader sleeps before it looks at both its clocks again. So it
// notices a suspended machine or a stepped clock within this time.
const maxSlice = time.Second

// maxTellingSlice is maxSlice for the system's clock, if it reports its jumps. Then the leader has only its
// drift to notice, which is 30 ms in this time.
const maxTellingSlice = time.Minute

// maxLate is how late a leader's timer may be set, after the look at the clock that it goes by.
const maxLate = 10 * time.Millisecond

// maxApart is how far a leader's clocks may run apart while it sleeps. If they run apart further,
// it computes again how long to sleep. It waits by the monotonic clock for the end of a view by the
// wall clock.
const maxApart = time.Millisecond / 2

// timekeeper reads both times of a Clock. A campaign's loop and its views share one.
type timekeeper struct{ loop.Timekeeper }

func newTimekeeper(clock clocks.Clock) *timekeeper { return &timekeeper{loop.NewTimekeeper(clock)} }

func (t *timekeeper) now() instant {
	wall, elapsed := t.Look()
	return instant{wall: wall.Round(0), mono: elapsed}
}
