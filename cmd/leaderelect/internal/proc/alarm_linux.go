package proc

import (
	"fmt"
	"os"
)

// Alarm rings at a Deadline. The kernel keeps the time by both of its clocks: no
// process has to wake up and look, and it rings at once after a suspension, or a
// step of the wall clock, that has passed the Deadline over.
type Alarm struct {
	// C has a value after the alarm has rung. It may ring without cause: look
	// at the time.
	C <-chan struct{}

	steady, wall *os.File
}

// NewAlarm returns an alarm that is not set.
func NewAlarm() (*Alarm, error) {
	rung := make(chan struct{}, 1)
	a := &Alarm{C: rung}
	for _, t := range []struct {
		clock int
		file  **os.File
	}{{steadyClock, &a.steady}, {clockRealtime, &a.wall}} {
		fd, err := timerfdCreate(t.clock, tfdCloexec|tfdNonblock)
		if err != nil {
			a.Close()
			return nil, fmt.Errorf("an alarm on the clock %d (timerfd_create): %w", t.clock, err)
		}
		*t.file = os.NewFile(uintptr(fd), "timerfd")
	}
	for _, f := range []*os.File{a.steady, a.wall} {
		go func() {
			for count := make([]byte, 8); ; {
				if _, err := f.Read(count); err != nil {
					return // closed
				}
				select {
				case rung <- struct{}{}:
				default:
				}
			}
		}()
	}
	return a, nil
}

// Set has the alarm ring at d, and not before.
func (a *Alarm) Set(d Deadline) {
	set(a.steady, d.Steady)
	set(a.wall, d.Wall)
}

func set(f *os.File, at int64) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	// 0 would disarm it.
	_ = raw.Control(func(fd uintptr) { _ = timerfdSettime(int(fd), timerAbstime, max(at, 1)) }) // fails only when closed
}

// Close ends the alarm.
func (a *Alarm) Close() {
	for _, f := range []*os.File{a.steady, a.wall} {
		if f != nil {
			_ = f.Close()
		}
	}
}
