package leaderelection

import (
	"context"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/hooks"
)

// maxEvents is how many calls may wait for a Trace or Logger that is stuck, maxWaiting how many
// records for another callback.
const maxEvents, maxWaiting = 1024, 128

// deliveries calls a user's callback with records.
type deliveries struct {
	hooks.Calls
	ctx  context.Context
	last delivery // the one that was added last

	// Of when the loop looked last:
	seen    int           // how many calls had returned
	calling bool          // a callback was running or waited to
	since   time.Duration // when that call was seen first
}

type delivery struct {
	entry *RaceEntry
	call  func(context.Context, RaceEntry)
	merge bool // may be replaced by a later extension of the same leadership
}

// deliver queues a delivery. A later extension replaces one of the same leadership that still waits.
func (d *deliveries) deliver(next delivery) {
	last := d.last
	d.last = next
	d.Put(func() {
		entry := next.entry.Clone()
		entry.Token = nil
		next.call(d.ctx, *entry)
	}, next.merge && last.merge && last.entry.ElectionNumber == next.entry.ElectionNumber)
}

// look returns whether a callback is running or waits to, and since when it has been seen running.
func (d *deliveries) look(now instant) (since time.Duration, running bool) {
	done, running := d.Progress()
	if !running || !d.calling || done != d.seen {
		d.seen, d.since = done, now.mono
	}
	d.calling = running
	return d.since, d.calling
}

// event says what has happened outside of a loop. It is an *answer, or of one of the types below.
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
	// workDone: a callback of a leadership has returned, or what Lead returned was released.
	workDone struct {
		of   *leadership
		what work
	}
	// resignAsked: Resign was called. Released gets nil when nothing is held any more, or an error.
	resignAsked struct{ released chan error }
	holdDropped struct{} // DropHold was called: the job that the Hold protects was not begun
	// announced: Announce was called.
	announced struct {
		hostPort []string
		params   []byte
	}
	// deathProved: the process of an incarnation is dead.
	deathProved struct{ of string }
	// pinged: Ping was called. Noticed gets nil if the campaign works, or an error.
	pinged struct{ noticed chan error }
	// lookAgain: something has changed that the loop looks at in each step.
	lookAgain struct{}
)

// mailbox brings events to a loop, and wakes it.
type mailbox struct {
	mu       sync.Mutex
	queue    []event
	spare    []event
	sleeping bool

	// On the system's clock the loop keeps one timer for all its sleeps. With a thousand leaders in
	// a process that look at their clocks every second, that saves most of the time. Events ring
	// the bell instead of the timer: in a synctest bubble whose test has returned, no timer goes
	// off any more.
	timer *time.Timer
	bell  chan struct{}

	// On any other clock the loop sleeps by the Clock alone, under a ctx. Its end wakes the loop.
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

// take returns the posted events. The loop must handle them before it calls take again.
func (m *mailbox) take() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queue
	m.queue, m.spare = m.spare[:0], q
	return q
}

// sleep returns true after d by the clock, or false when something is posted. If the process was stopped just before
// the timer was set, the timer is late: then late says so, and sleep returns true at once. On a clock that is not the
// system's nobody can ask it in time.
func (m *mailbox) sleep(clock clocks.Clock, d time.Duration, late func() bool) bool {
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

	if system && (late == nil || !late()) {
		select {
		case <-m.timer.C:
		case <-m.bell:
			return false
		}
	} else if !system {
		clock.SleepFor(m.ctx, d)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	slept := m.sleeping // post clears it to say that it has woken the loop
	m.sleeping = false
	if system && !slept {
		<-m.bell
	}
	return slept
}

// close frees the timer and the ctx of the last sleep.
func (m *mailbox) close() {
	if m.timer != nil {
		m.timer.Stop()
	}
	if m.wake != nil {
		m.wake()
	}
}
