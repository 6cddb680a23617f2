//go:build unix && !linux

package proc

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const steadyClock = unix.CLOCK_MONOTONIC

func clockGettime(clock int32) (nanoseconds int64, err error) {
	var t unix.Timespec
	err = unix.ClockGettime(clock, &t)
	return t.Nano(), err
}

func self() (string, error) { return os.Executable() }

func rename() {}

// adopt does nothing: what leaves the command's process group is not followed.
func adopt() error { return nil }

// confined: nothing here keeps a setuid program from becoming another user.
func confined() bool { return false }

func confine() error { return nil }

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func checkSystem() error { return nil }

const canList = false

func descendants() []int { return nil }

func orphans(int64) ([]int, bool) { return nil, false }

func zombies() []int { return nil }

func owner(int) string { return "" }

// rouser does nothing here: a process that is stopped stays so.
type rouser struct{}

func newRouser() (*rouser, error) { return &rouser{}, nil }

func (*rouser) set(Deadline, time.Duration) {}

// lifeline: nothing wakes a stopped process here.
func lifeline() (life, end *os.File, err error) { return nil, nil, nil }

func letGo(int) {}
