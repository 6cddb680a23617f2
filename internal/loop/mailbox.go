package loop

import (
	"context"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// Mailbox brings events to a loop, and wakes it. Post may be called by any number of goroutines, all else only by the
// loop's.
type Mailbox[E any] struct {
	Clock clocks.Clock // nil: the system's

	mu       sync.Mutex
	queue    []E
	spare    []E
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

// Post hands e to the loop. It never blocks.
func (m *Mailbox[E]) Post(e E) {
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

// Take returns the posted events. The loop must be done with them before it calls Take again.
func (m *Mailbox[E]) Take() []E {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queue
	m.queue, m.spare = m.spare[:0], q
	return q
}

// Sleep returns true after d by the clock, or false when something is posted. If the process was stopped just before
// the timer was set, the timer is late: then late says so, and Sleep returns true at once. On a clock that is not the
// system's nobody can ask it in time.
func (m *Mailbox[E]) Sleep(d time.Duration, late func() bool) bool {
	system := m.Clock == nil
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
		m.Clock.SleepFor(m.ctx, d)
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	slept := m.sleeping // Post clears it to say that it has woken the loop
	m.sleeping = false
	if system && !slept {
		<-m.bell
	}
	return slept
}

// Close frees the timer and the ctx of the last sleep.
func (m *Mailbox[E]) Close() {
	if m.timer != nil {
		m.timer.Stop()
	}
	if m.wake != nil {
		m.wake()
	}
}
