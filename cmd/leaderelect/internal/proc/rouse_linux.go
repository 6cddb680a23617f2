package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// rouser has the kernel see to it that this process does not sleep through what it has to
// do when it is stopped (SIGSTOP): a timer's signal reaches a stopped process, too.
// SIGCONT has it go on. It may be stopped again, or held by a debugger, for which
// SIGCONT is nothing; so later SIGKILL ends it.
type rouser struct {
	steady, wall posixTimer // SIGCONT
	kill         posixTimer // SIGKILL
}

type posixTimer int32

// newRouser returns one that is not set. It lasts as long as the process.
func newRouser() (*rouser, error) {
	r := &rouser{-1, -1, -1}
	for _, t := range []struct {
		timer  *posixTimer
		clock  int
		signal syscall.Signal
	}{
		{&r.steady, steadyClock, syscall.SIGCONT},
		{&r.wall, clockRealtime, syscall.SIGCONT},
		// This one stands still while the machine is suspended: when it wakes, this
		// process is to do its work, and not to die.
		{&r.kill, clockMonotonic, syscall.SIGKILL},
	} {
		if err := t.timer.create(t.clock, t.signal); err != nil {
			r.close()
			return nil, fmt.Errorf("a timer that wakes a stopped process (timer_create on the clock %d): %w; does a sandbox forbid it?", t.clock, err)
		}
	}
	return r, nil
}

// set has this process go on at wake, if it is stopped, and die when kill has passed
// from now. No kill is never.
func (r *rouser) set(wake Deadline, kill time.Duration) {
	r.steady.set(timerAbstime, wake.Steady)
	r.wall.set(timerAbstime, wake.Wall)
	r.kill.set(0, int64(kill))
}

// close forgets the timers.
func (r *rouser) close() {
	for _, t := range []posixTimer{r.steady, r.wall, r.kill} {
		_, _, _ = syscall.Syscall(syscall.SYS_TIMER_DELETE, uintptr(t), 0, 0) // -1 is none
	}
}

// sigevent is struct sigevent of sigevent(3type).
type sigevent struct {
	value  uintptr
	signal int32
	notify int32
	_      [13]int32 // 64 bytes are read, at least
}

// create makes a timer that sends a signal to this process (SIGEV_SIGNAL).
func (t *posixTimer) create(clock int, s syscall.Signal) error {
	e := sigevent{signal: int32(s)}
	_, _, errno := syscall.Syscall(syscall.SYS_TIMER_CREATE, uintptr(clock), uintptr(unsafe.Pointer(&e)), uintptr(unsafe.Pointer(t)))
	return errnoOf(errno)
}

// set sets it; 0 disarms it.
func (t posixTimer) set(flags int, at int64) {
	next := itimerspec{value: syscall.NsecToTimespec(at)}
	// It fails only for a timer that there is not.
	_, _, _ = syscall.Syscall6(syscall.SYS_TIMER_SETTIME, uintptr(t), uintptr(flags), uintptr(unsafe.Pointer(&next)), 0, 0, 0)
}

// lifeline is a pipe by which the kernel wakes this process with SIGCONT, if it is
// stopped, as soon as its guard is dead. Only the guard has the end that can be written
// to; life is here and there. A guard that has done its work calls letGo first: a
// candidate that was stopped on purpose stays so.
func lifeline() (life, end *os.File, err error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("a pipe that tells of the guard's death: %w", err)
	}
	life, end = os.NewFile(uintptr(fds[0]), "lifeline"), os.NewFile(uintptr(fds[1]), "lifeline")
	for _, c := range [][2]int{{syscall.F_SETOWN, os.Getpid()}, {fSetsig, int(syscall.SIGCONT)}, {syscall.F_SETFL, syscall.O_ASYNC}} {
		if err := fcntl(fds[0], c[0], c[1]); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("asking to be told of the guard's death (fcntl %d): %w", c[0], err), life.Close(), end.Close())
		}
	}
	return life, end, nil
}

// letGo has this process's end tell nobody. The flag belongs to the open pipe, which the
// candidate shares.
func letGo(life int) { _ = fcntl(life, syscall.F_SETFL, 0) }
