package leaderelection

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// The shortest pauses that any setting leads to: between two extensions, and
// between two polls.
const (
	minInterval = time.Millisecond
	minPoll     = 10 * time.Millisecond
)

// maxSlice is the longest a leader sleeps before it looks at both its clocks
// again: a suspended machine or a stepped clock is noticed within it.
const maxSlice = time.Second

// maxApart is how far its clocks may have run apart while it sleeps before it works
// out anew for how long: the end of a view by the wall clock is waited for by the
// monotonic one.
const maxApart = time.Millisecond / 2

// instant is one look at a campaign's clock.
type instant struct {
	raw  time.Time     // as Now returned it, with its monotonic reading
	wall time.Time     // without: to be compared with other machines' times
	mono time.Duration // elapsed since the loop began, whatever is done to the wall clock
}

// timekeeper reads both times off a Clock.
type timekeeper struct {
	clock clocks.Clock
	mono  clocks.Monotonic
	epoch time.Time
	start time.Duration
}

func newTimekeeper(clock clocks.Clock) timekeeper {
	t := timekeeper{clock: clock, epoch: clock.Now()}
	if m, ok := clock.(clocks.Monotonic); ok {
		t.mono, t.start = m, m.Monotonic()
	}
	return t
}

func (t *timekeeper) now() instant {
	raw := t.clock.Now()
	at := instant{raw: raw, wall: raw.Round(0)}
	if t.mono != nil {
		at.mono = t.mono.Monotonic() - t.start
	} else {
		at.mono = raw.Sub(t.epoch)
	}
	return at
}

// endAfter is the position of a view that ends at the wall time wall, and not
// later than left after at by the monotonic clock.
func (t *timekeeper) endAfter(at instant, left time.Duration, wall time.Time) *viewState {
	s := &viewState{wall: wall, wallNS: wall.UnixNano(), mono: at.raw.Add(left)}
	if t.mono != nil {
		s.elapsed = t.start + at.mono + left
	}
	return s
}

// tighten is s, which ends no later by the monotonic clock than the wall clock says
// now: where the wall clock has run ahead, the machine was suspended and the monotonic
// clock stood still. Without wall clocks to compare, a later set-back would hide it.
func (t *timekeeper) tighten(s *viewState, at instant) *viewState {
	left := s.mono.Sub(at.raw)
	if t.mono != nil {
		left = s.elapsed - t.start - at.mono
	}
	lost := left - time.Duration(s.wallNS-at.wall.UnixNano())
	if lost <= 0 {
		return s
	}
	c := *s
	c.mono, c.elapsed = s.mono.Add(-lost), s.elapsed-lost
	return &c
}

// isSystem says whether clock is the machine's own, or its bubble's: that of
// package time.
func isSystem(clock clocks.Clock) bool {
	switch clock.(type) {
	case clocks.SystemClock, clocks.KernelClock:
		return true
	}
	return false
}

// hasMonotonic reports whether clock tells elapsed time apart from wall time. In a
// testing/synctest bubble no time has a monotonic reading, and no wall clock is set.
func hasMonotonic(clock clocks.Clock) bool {
	if _, ok := clock.(clocks.Monotonic); ok || clock == nil || isSystem(clock) {
		return true
	}
	carries := func(t time.Time) bool { return t != t.Round(0) }
	return carries(clock.Now()) || !carries(time.Now())
}

// event is what happens outside of a loop and is brought to it: an *answer, or one of
// the types below.
type event interface{}

type (
	// pushed: a feed has delivered entry.
	pushed struct {
		from  *session
		entry *RaceEntry
	}
	// feedEnded: a feed is gone; err is nil if it did not say why.
	feedEnded struct {
		of  *session
		err error
	}
	// healthAnswered: Healthy has returned.
	healthAnswered struct {
		check *check
		err   error
	}
	// callbackDone: OnElected or OnOusting of a reign has returned.
	callbackDone struct{ of *reign }
	// resignAsked: Resign was called; released is closed when nothing is held any more.
	resignAsked struct{ released chan struct{} }
	// lookAgain: something that a loop looks at by itself has changed.
	lookAgain struct{}
)

// mailbox brings events to a loop, and wakes it.
type mailbox struct {
	mu       sync.Mutex
	queue    []event
	spare    []event
	sleeping bool

	// On the system's clock the loop sleeps by one timer, which it keeps: with a
	// thousand leaders in a process that look at their clocks every second, this is
	// where the time goes. A bell wakes it, and not the timer: in a synctest bubble
	// whose test has returned no timer goes off any more.
	timer *time.Timer
	bell  chan struct{}

	// On any other it sleeps by the Clock alone, under a ctx that is ended to
	// wake it.
	ctx  context.Context
	wake context.CancelFunc
}

// post hands e to the loop. It never blocks.
func (m *mailbox) post(e event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue = append(m.queue, e)
	if !m.sleeping {
		return
	}
	m.sleeping = false
	if m.timer != nil {
		m.bell <- struct{}{} // there is room: one is sent for each sleep
	} else {
		m.wake()
	}
}

// take returns what has been posted, to be handled by the loop before it calls take
// again.
func (m *mailbox) take() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queue
	m.queue, m.spare = m.spare[:0], q
	return q
}

// sleep returns true after d by the clock, or false when something is posted.
func (m *mailbox) sleep(clock clocks.Clock, d time.Duration) bool {
	system := isSystem(clock)
	m.mu.Lock()
	if len(m.queue) > 0 {
		m.mu.Unlock()
		return false
	}
	switch {
	case system && m.timer == nil:
		m.timer, m.bell = time.NewTimer(d), make(chan struct{}, 1)
	case system:
		m.timer.Reset(d) // which also discards what it may have sent
	case m.ctx == nil || m.ctx.Err() != nil:
		m.ctx, m.wake = context.WithCancel(context.Background())
	}
	m.sleeping = true
	m.mu.Unlock()

	if system {
		select {
		case <-m.timer.C:
		case <-m.bell:
			return false
		}
	} else {
		clock.SleepFor(m.ctx, d)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	slept := m.sleeping // post says that it has woken the loop by clearing it
	m.sleeping = false
	if system && !slept {
		<-m.bell
	}
	return slept
}

// close frees what the last sleep left.
func (m *mailbox) close() {
	if m.timer != nil {
		m.timer.Stop()
	}
	if m.wake != nil {
		m.wake()
	}
}

// alarm gathers the moments at which a loop must look again, and keeps the
// earliest.
type alarm struct {
	now instant
	in  time.Duration
}

func newAlarm(now instant) alarm { return alarm{now: now, in: time.Hour} }

// at asks for a look at an elapsed time.
func (a *alarm) at(mono time.Duration) { a.in = min(a.in, max(mono-a.now.mono, 0)) }

// atWall asks for a look at a wall time. It rounds up, and looks again within
// the hour: the clock may be stepped.
func (a *alarm) atWall(wall time.Time) { a.in = min(a.in, max(wall.Sub(a.now.wall), 0)) }

// retry spaces attempts at something that fails: the pause doubles from base to
// limit, measured from the start of one attempt to the start of the next, and
// is lengthened by up to a quarter so that candidates do not march in step.
type retry struct {
	base, limit time.Duration
	seed        uint64 // jitter follows from it and the number of failures, so that a run can be repeated
	fails       uint64
	notBefore   time.Duration
}

// backoffs returns how a candidate spaces its failing reads and writes: quickly
// at first, since what is left of a view may be short, and never above four of
// each a second: a write that failed is followed by a read.
func backoffs(name string, term time.Duration) (reads, writes retry) {
	h := fnv.New64a()
	h.Write([]byte(name))
	base := min(max(term/32, minPause), time.Second)
	limit := min(max(term/8, base), 30*time.Second)
	reads = retry{base: base, limit: limit, seed: h.Sum64()}
	writes = retry{base: base, limit: max(limit, 4*base), seed: h.Sum64() + 1}
	return reads, writes
}

// within keeps the pauses, jitter and all, below a PollInterval, so that what happens
// in an outage is noticed no later than anything else; but not above four a second.
func (r *retry) within(poll time.Duration) {
	r.limit = min(r.limit, max(poll*4/5, minPause))
	r.base = min(r.base, r.limit)
}

// minPause is the shortest between two attempts at something that fails.
const minPause = 250 * time.Millisecond

// failed notes a failure of what began at start.
func (r *retry) failed(start time.Duration) {
	pause := r.limit
	if r.fails < 16 {
		pause = min(r.base<<r.fails, r.limit)
	}
	r.fails++
	x := (r.seed + r.fails) * 0x9E3779B97F4A7C15
	x ^= x >> 29
	pause += time.Duration(x%1024) * pause / 4096
	r.notBefore = max(r.notBefore, start+pause)
}

// worked forgets all failures.
func (r *retry) worked() { r.fails, r.notBefore = 0, 0 }
