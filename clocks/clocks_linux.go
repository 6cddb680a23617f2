package clocks

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// systemJumps is shared by all: the machine has one clock, and a process with a thousand leaders
// should not have a thousand file descriptors for it.
var systemJumps jumps

// jumps reports jumps of the machine's clock. It uses a timer on the wall clock that is not meant
// to expire: the kernel cancels the timer when the clock is set, and when the machine resumes
// (TFD_TIMER_CANCEL_ON_SET in timerfd_create(2)).
type jumps struct {
	mu    sync.Mutex
	asked map[*func()]struct{}
	timer *os.File // nil while nobody asks
}

// add arranges that f is called on each jump, until stop is called.
func (j *jumps) add(f func()) (stop func(), err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.timer == nil {
		if j.timer, err = cancelledTimer(); err != nil {
			return nil, err
		}
		j.asked = make(map[*func()]struct{})
		go j.watch(j.timer)
	}
	key := &f
	j.asked[key] = struct{}{}
	return func() { j.remove(key) }, nil
}

func (j *jumps) remove(key *func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, there := j.asked[key]; !there {
		return // stopped twice
	}
	if delete(j.asked, key); len(j.asked) == 0 {
		_ = j.timer.Close() // watch ends
		j.timer = nil
	}
}

// watch reports jumps until the timer is closed.
func (j *jumps) watch(timer *os.File) {
	for count := make([]byte, 8); ; {
		if _, err := timer.Read(count); err != nil && !errors.Is(err, syscall.ECANCELED) {
			return
		}
		// Before anybody looks at the clock, so that a later jump is reported again.
		_ = arm(timer)
		j.mu.Lock()
		var all []func()
		if j.timer == timer {
			for f := range j.asked {
				all = append(all, *f)
			}
		}
		j.mu.Unlock()
		for _, f := range all {
			f()
		}
	}
}

// Constants of linux/timerfd.h and linux/time.h that package syscall does not have.
const (
	clockRealtime  = 0
	tfdNonblock    = syscall.O_NONBLOCK
	tfdCloexec     = syscall.O_CLOEXEC
	tfdAbstime     = 1
	tfdCancelOnSet = 2
)

// farOff is how long the timer runs before it expires after all, and is set again.
const farOff = 365 * 24 * time.Hour

// what names the timer in errors.
const what = "clocks: a timer that tells of jumps of the clock"

// cancelledTimer returns a file whose Read returns ECANCELED when the clock has jumped.
func cancelledTimer() (*os.File, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockRealtime, tfdNonblock|tfdCloexec, 0)
	if errno != 0 {
		return nil, fmt.Errorf("%s (timerfd_create): %w", what, errno)
	}
	timer := os.NewFile(fd, "timerfd")
	if err := arm(timer); err != nil {
		return nil, errors.Join(err, timer.Close())
	}
	return timer, nil
}

// arm sets the timer, so that the next jump cancels it.
func arm(timer *os.File) error { return armAt(timer, time.Now().Add(farOff)) }

func armAt(timer *os.File, at time.Time) error {
	raw, err := timer.SyscallConn()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	next := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(at.UnixNano())}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, fd, tfdAbstime|tfdCancelOnSet, uintptr(unsafe.Pointer(&next)), 0, 0, 0)
	})
	if errno == syscall.ECANCELED { // the clock has jumped meanwhile: the timer is set, and will report it
		errno = 0
	}
	if err == nil && errno != 0 {
		err = errno
	}
	if err != nil {
		return fmt.Errorf("%s (timerfd_settime): %w", what, err)
	}
	return nil
}

// staUnsync is STA_UNSYNC of linux/timex.h: the clock is not synchronised.
const staUnsync = 0x40

// kernelBound asks adjtimex(2), and changes nothing.
func kernelBound() (time.Duration, error) {
	var t syscall.Timex
	if _, err := syscall.Adjtimex(&t); err != nil {
		return 0, fmt.Errorf("clocks: asking the kernel for its clock's error bound (adjtimex): %w", err)
	}
	return boundOf(&t), nil
}

func boundOf(t *syscall.Timex) time.Duration {
	if t.Status&staUnsync != 0 {
		return Unbounded
	}
	return time.Duration(t.Maxerror) * time.Microsecond
}
