//go:build !linux

package proc

import (
	"sync"
	"time"
)

// Alarm rings at a Deadline. A timer stands still during a suspension and does not
// notice that the wall clock was set: the time is looked at every slice.
type Alarm struct {
	// C has a value after the alarm has rung. It may ring without cause: look
	// at the time.
	C <-chan struct{}

	mu    sync.Mutex
	at    Deadline
	timer *time.Timer
}

// slice is the longest an alarm sleeps before it looks at both clocks again.
const slice = 100 * time.Millisecond

// NewAlarm returns an alarm that is not set.
func NewAlarm() (*Alarm, error) {
	rung := make(chan struct{}, 1)
	a := &Alarm{C: rung}
	a.timer = time.AfterFunc(time.Hour, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if left := a.at.Left(); left > 0 {
			a.timer.Reset(min(left, slice))
			return
		}
		select {
		case rung <- struct{}{}:
		default:
		}
	})
	a.timer.Stop()
	return a, nil
}

// Set has the alarm ring at d, and not before.
func (a *Alarm) Set(d Deadline) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = d
	a.timer.Reset(min(max(d.Left(), 0), slice))
}

// Close ends the alarm.
func (a *Alarm) Close() { a.timer.Stop() }
