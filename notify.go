package leaderelection

import (
	"context"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// events makes the calls of user code for which the election does not wait (Trace, Logger): one at
// a time, in order, in a goroutine that exists only while there are calls to make.
type events struct {
	mu      sync.Mutex
	queue   []func()
	running bool
	idle    func() // called, without the lock, when the queue has run empty
}

// maxEvents is how many events may wait for a Trace or Logger that is stuck.
const maxEvents = 1024

// add queues f. If too many wait, the oldest is dropped.
func (e *events) add(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.queue) >= maxEvents {
		e.queue = e.queue[1:]
	}
	e.queue = append(e.queue, f)
	if !e.running {
		e.running = true
		go e.run()
	}
}

func (e *events) run() {
	defer func() {
		// This runs even if a hook ended its goroutine, as t.FailNow does.
		e.mu.Lock()
		again := len(e.queue) > 0
		e.running = again
		e.mu.Unlock()
		if again {
			go e.run()
			return
		}
		e.idle()
	}()
	for {
		e.mu.Lock()
		if len(e.queue) == 0 {
			e.queue = nil
			e.mu.Unlock()
			return
		}
		f := e.queue[0]
		e.queue = e.queue[1:]
		e.mu.Unlock()
		f()
	}
}

// busy reports whether a call is being made, or waits to be.
func (e *events) busy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running
}

// maxWaiting is how many records may wait for a callback that is stuck.
const maxWaiting = 128

// deliveries calls a user's callback with records, one at a time and in order, in a goroutine that
// exists only while there are records.
type deliveries struct {
	ctx     context.Context
	call    func(context.Context, RaceEntry)
	idle    func()
	mu      sync.Mutex
	done    int
	queue   []delivery
	running bool

	// The loop's own, of when it looked last:
	seen    int           // done
	calling bool          // running
	since   time.Duration // when that call was seen first
}

type delivery struct {
	entry *RaceEntry
	call  func(context.Context, RaceEntry)
	merge bool // may be replaced by a later extension of the same leadership
}

// add queues a delivery. A later extension replaces one of the same leadership that still waits. If
// too many wait, the oldest is dropped.
func (d *deliveries) add(next delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.queue); n > 0 && next.merge && d.queue[n-1].merge &&
		d.queue[n-1].entry.ElectionNumber == next.entry.ElectionNumber {
		d.queue[n-1] = next
		return
	}
	if len(d.queue) >= maxWaiting {
		d.queue = d.queue[1:]
	}
	d.queue = append(d.queue, next)
	if !d.running {
		d.running = true
		go d.run()
	}
}

func (d *deliveries) run() {
	defer func() {
		// This runs even if a callback ended its goroutine, as t.FailNow does.
		d.mu.Lock()
		again := len(d.queue) > 0
		d.running = again
		d.mu.Unlock()
		if again {
			go d.run()
			return
		}
		d.idle()
	}()
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.queue = nil
			d.mu.Unlock()
			return
		}
		next := d.queue[0]
		d.queue = d.queue[1:]
		d.mu.Unlock()
		entry := next.entry.Clone()
		entry.Token = nil
		next.call(d.ctx, *entry)
		d.mu.Lock()
		d.done++
		d.mu.Unlock()
	}
}

// drop drops the records that wait.
func (d *deliveries) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = nil
}

// look returns whether a callback is running or waits to, and since when it has been seen running.
func (d *deliveries) look(now instant) (since time.Duration, running bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running || !d.calling || d.done != d.seen {
		d.seen, d.since = d.done, now.mono
	}
	d.calling = d.running
	return d.since, d.calling
}

// busy reports whether a callback is running or waits to.
func (d *deliveries) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.running
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
