package proc

import (
	"syscall"
	"unsafe"
)

// The system calls that package syscall does not wrap. golang.org/x/sys/unix does, but
// a guard is to begin before other packages than those of the standard library do (see
// init in start_unix.go).

// Of linux/time.h, linux/timerfd.h, linux/prctl.h, linux/capability.h and linux/fcntl.h.
const (
	clockRealtime  = 0
	clockMonotonic = 1
	clockBoottime  = 7

	timerAbstime = 1 // also of timerfd
	tfdCloexec   = syscall.O_CLOEXEC
	tfdNonblock  = syscall.O_NONBLOCK

	prSetChildSubreaper = 36
	prSetNoNewPrivs     = 38
	capVersion3         = 0x20080522
	capKill             = 5
	fSetsig             = 10
)

type itimerspec struct{ interval, value syscall.Timespec }

func errnoOf(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func clockGettime(clock int) (nanoseconds int64, err error) {
	var t syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano(), errnoOf(errno)
}

func timerfdCreate(clock, flags int) (fd int, err error) {
	r, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, uintptr(clock), uintptr(flags), 0)
	return int(r), errnoOf(errno)
}

// timerfdSettime has it expire once, at nanoseconds.
func timerfdSettime(fd, flags int, at int64) error {
	next := itimerspec{value: syscall.NsecToTimespec(at)}
	_, _, errno := syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(fd), uintptr(flags), uintptr(unsafe.Pointer(&next)), 0, 0, 0)
	return errnoOf(errno)
}

func prctl(option, value int) error {
	_, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, uintptr(option), uintptr(value), 0, 0, 0, 0)
	return errnoOf(errno)
}

// capabilities are the effective ones of this process, those from 0 to 31.
func capabilities() (uint32, error) {
	header := struct {
		version uint32
		pid     int32
	}{version: capVersion3}
	var data [2]struct{ effective, permitted, inheritable uint32 }
	_, _, errno := syscall.Syscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data)), 0)
	return data[0].effective, errnoOf(errno)
}

func fcntl(fd, command, value int) error {
	_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), uintptr(command), uintptr(value))
	return errnoOf(errno)
}
