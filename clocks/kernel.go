package clocks

import (
	"math"
	"time"
)

// Bounded reports how far a clock can be from true time. A [Clock] implements it if it knows. If
// the bound is more than MaxClockSkew, the candidate neither campaigns nor leads.
type Bounded interface {
	// ErrorBound returns how far the clock is off at most, in either direction. It returns
	// Unbounded if nothing keeps the clock right. An error means that the bound is not
	// known, which speaks neither for nor against the clock. ErrorBound is called often and
	// by several goroutines, and must return at once.
	ErrorBound() (time.Duration, error)
}

// Unbounded is the ErrorBound of a clock that nothing keeps right.
const Unbounded = time.Duration(math.MaxInt64)

// Kernel returns the machine's own clock, with the bound that the kernel keeps for its error
// (maxerror in adjtimex(2)). Use it as Config.Clock so that a candidate whose machine has lost
// its time service compares no clocks: it lets others lead first, and marks its record Unsynchronized.
//
// The NTP client sets the bound after each poll, to its distance from the reference. The kernel
// adds 500 µs for every second since. If no NTP client sets the bound, it is Unbounded, and a
// candidate with this clock never compares it. chrony sets it with "rtcsync"; systemd-timesyncd and
// ntpd always do. systemd-timesyncd sets 0. With it, the bound is only what the kernel has
// added since the last poll, not the real error.
//
// This needs Linux and permission: some containers' seccomp profiles refuse adjtimex. Otherwise
// ErrorBound returns an error, and the clock counts as [System]. Inside testing/synctest the
// time is the bubble's, but the bound is the real kernel's.
func Kernel() Clock { return KernelClock{} }

// KernelClock is the type of [Kernel]. Its zero value is ready for use.
type KernelClock struct{ SystemClock }

// ErrorBound implements [Bounded]. It makes one system call, of about a microsecond.
func (KernelClock) ErrorBound() (time.Duration, error) { return kernelBound() }
