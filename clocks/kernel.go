package clocks

import (
	"math"
	"time"
)

// Bounded is what a Clock implements beyond the four methods when it knows how
// far it can be from true time. A campaign whose Clock says that this is more
// than MaxClockSkew neither campaigns nor leads.
type Bounded interface {
	// ErrorBound is how far at most the clock is off, in either direction:
	// Unbounded where nothing keeps it right. An error says that this cannot
	// be told, which speaks neither for nor against the clock. It is called
	// often and by several goroutines, and must return at once.
	ErrorBound() (time.Duration, error)
}

// Unbounded is the ErrorBound of a clock that nothing keeps right.
const Unbounded = time.Duration(math.MaxInt64)

// Kernel is the machine's own clock, together with the bound that the kernel
// keeps for its error (maxerror in adjtimex(2)): the NTP client sets it after
// each poll to its distance from the reference, and the kernel adds 500 µs for
// every second since. Without an NTP client that tells the kernel (chrony does
// with "rtcsync", systemd-timesyncd and ntpd always do) it is Unbounded, and a
// candidate with this clock never leads. systemd-timesyncd tells 0, so with that
// one the bound is what has been added since its last poll, not the real error.
//
// It needs Linux, and leave to ask: some containers' seccomp profiles refuse
// adjtimex. Elsewhere ErrorBound returns an error, and the clock is taken as
// [System] is. Like that, it is its bubble's inside testing/synctest, though the
// bound is the real kernel's.
func Kernel() Clock { return KernelClock{} }

// KernelClock is the type of [Kernel]. Its zero value is ready for use.
type KernelClock struct{ SystemClock }

// ErrorBound implements [Bounded]: one system call, a microsecond or so.
func (KernelClock) ErrorBound() (time.Duration, error) { return kernelBound() }
