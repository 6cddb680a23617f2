package leaderelection

import (
	"context"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

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
	// callbackDone: OnElected or OnOusting of a leadership has returned.
	callbackDone struct{ of *leadership }
	// resignAsked: Resign was called; released is closed when nothing is held any more.
	resignAsked struct{ released chan struct{} }
	// announced: Announce was called.
	announced struct {
		hostPort []string
		params   []byte
	}
	// pinged: Ping was called; noticed is closed.
	pinged struct{ noticed chan struct{} }
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
