package leaderelection

import (
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// TimeView is what a leader consults before each act: until when it may act.
//
// Its end is the term's expiry less MaxClockSkew, and moves on with each
// extension that the store has confirmed. It is over as soon as either the wall
// clock or the monotonic clock reaches that end, so neither a clock that is set
// back nor a machine that was suspended can lengthen it. Seen over once, it is
// over for ever: a view belongs to one leadership, and work left over from an earlier
// leadership stays fenced off when its process is elected again.
//
// The views of successive leaders never overlap in true time. All methods may
// be called by any number of goroutines at once, and none of them blocks.
type TimeView struct {
	clock  *timekeeper
	owned  bool // by a campaign: Set does nothing
	number ElectionNumber
	state  atomic.Pointer[viewState]
}

// viewState is one immutable position of a view's end.
type viewState struct {
	wall   time.Time     // the end, by the wall clock, without a monotonic reading
	wallNS int64         // the same, in nanoseconds since 1970
	mono   time.Duration // the end, by the timekeeper's elapsed time
	apart  time.Duration // the wall clock may say that this much more is left than the monotonic one does; 0: any
	over   bool          // the latch
}

// NewTimeView returns a view for tests of code that takes one. It is over until
// Set moves it. A nil clock is the system's. The views that a campaign hands out
// are made by the campaign.
func NewTimeView(clock clocks.Clock) *TimeView { return NewTimeViewOf(clock, NoElections) }

// NewTimeViewOf is NewTimeView with the ElectionNumber of the leadership that it is to
// belong to: for tests of code that sends the fencing token along.
func NewTimeViewOf(clock clocks.Clock, number ElectionNumber) *TimeView {
	if clock == nil {
		clock = clocks.System()
	}
	v := newView(newTimekeeper(clock), number)
	v.owned = false
	return v
}

// newView returns a campaign's view, over until it is first moved.
func newView(clock *timekeeper, number ElectionNumber) *TimeView {
	v := &TimeView{clock: clock, owned: true, number: number}
	v.state.Store(&viewState{over: true})
	return v
}

// Get returns the end of the view as a wall time: the term's expiry less
// MaxClockSkew. It says when, not whether: it stays the same after the end. The
// zero time where there never was one.
func (t *TimeView) Get() time.Time { return t.state.Load().wall }

// Clock is the clock that the view is measured by; never nil.
func (t *TimeView) Clock() clocks.Clock { return t.clock.clock }

// ElectionNumber is the number of the leadership that the view belongs to: the
// fencing token to send along with every act. NoElections where it belongs to
// none.
func (t *TimeView) ElectionNumber() ElectionNumber { return t.number }

// ValueInFuture reports whether the leader may act now. Ask immediately before
// each act. It costs little more than time.Now, and does not allocate.
func (t *TimeView) ValueInFuture() bool {
	for {
		s := t.state.Load()
		if s.over {
			return false
		}
		if t.before(s) {
			return true
		}
		// Latch, unless the end was moved on since it was loaded.
		end := *s
		end.over = true
		if t.state.CompareAndSwap(s, &end) {
			return false
		}
	}
}

// latched reports whether somebody has seen the view over, without looking at the
// clock.
func (t *TimeView) latched() bool { return t.state.Load().over }

// before reports whether neither clock has reached the end s.
func (t *TimeView) before(s *viewState) bool {
	now, elapsed := t.clock.look()
	left := s.mono - elapsed
	wall := s.wallNS - now.UnixNano()
	// A wall clock that was set back would hide that the machine is suspended.
	return left > 0 && wall > 0 && (s.apart == 0 || time.Duration(wall)-left <= s.apart)
}

// Set moves the end of a view made by NewTimeView or NewTimeViewOf to v, in either direction,
// also when it was over. On a campaign's view it does nothing.
func (t *TimeView) Set(v time.Time) {
	if t.owned {
		return
	}
	now, elapsed := t.clock.look()
	left := max(v.Round(0).Sub(now.Round(0)), -MaxTermLength) // how long ago does not matter
	s := &viewState{wall: v.Round(0), wallNS: now.UnixNano() + int64(left), mono: elapsed + left}
	s.over = !t.before(s)
	t.state.Store(s)
}

// begin sets a campaign's view to its first end. Only for a view that was never
// handed out.
func (t *TimeView) begin(s *viewState) { t.state.Store(s) }

// moveOn sets the end of a live view to s where that is later, and reports whether
// the view is still alive. A view that is over stays so.
func (t *TimeView) moveOn(s *viewState) bool {
	for {
		if !t.ValueInFuture() {
			return false
		}
		old := t.state.Load()
		if old.over {
			return false
		}
		if !s.later(old) {
			return true
		}
		if t.state.CompareAndSwap(old, s) {
			return true
		}
	}
}

// replace sets the end of a live view from old to s, unless it was moved or ended
// meanwhile.
func (t *TimeView) replace(old, s *viewState) {
	if !old.over && old != s {
		t.state.CompareAndSwap(old, s)
	}
}

// later reports whether s was set for a later write than o. By the monotonic clock:
// the wall clock may have been set back since.
func (s *viewState) later(o *viewState) bool {
	return s.mono > o.mono
}

// end makes the view be over from now on.
func (t *TimeView) end() {
	for {
		s := t.state.Load()
		if s.over {
			return
		}
		end := *s
		end.over = true
		if t.state.CompareAndSwap(s, &end) {
			return
		}
	}
}
