package proc

import (
	"fmt"
	"time"
)

// Deadline is a moment on two clocks, of which the earlier counts: wall time can
// be set, and steady time cannot. Both mean the same to all processes of a
// machine.
type Deadline struct {
	Wall   int64 `json:"wall"`   // nanoseconds since 1970
	Steady int64 `json:"steady"` // nanoseconds since boot
}

// At is the deadline at the wall time t, but not later than limit from now by the
// steady clock.
func At(t time.Time, limit time.Duration) Deadline {
	now := time.Now()
	left := min(t.Round(0).Sub(now.Round(0)), limit)
	return Deadline{Wall: t.UnixNano(), Steady: steady() + int64(left)}
}

// Sub is the deadline d earlier.
func (l Deadline) Sub(d time.Duration) Deadline {
	return Deadline{Wall: l.Wall - int64(d), Steady: l.Steady - int64(d)}
}

// in is the deadline d from now.
func in(d time.Duration) Deadline { return At(time.Now().Add(d), d) }

// earlier is the one of two deadlines that comes first, by each clock.
func (l Deadline) earlier(o Deadline) Deadline {
	return Deadline{Wall: min(l.Wall, o.Wall), Steady: min(l.Steady, o.Steady)}
}

// Left is how long it is until the deadline; negative once it is past.
func (l Deadline) Left() time.Duration {
	return min(time.Duration(l.Wall-time.Now().UnixNano()), time.Duration(l.Steady-steady()))
}

// steady is the time since boot, on Linux including suspensions. It cannot fail
// if Check has not.
func steady() int64 {
	t, _ := clockGettime(steadyClock)
	return t
}

// Check reports what commands could not be ended in time for on this system: no
// command may be started then.
func Check() error {
	if _, err := clockGettime(steadyClock); err != nil {
		return fmt.Errorf("reading the clock that nobody sets (clock_gettime %d): %w; does a sandbox forbid it?", steadyClock, err)
	}
	return checkSystem()
}
