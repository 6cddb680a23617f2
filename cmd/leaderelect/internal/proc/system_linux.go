package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const steadyClock = unix.CLOCK_BOOTTIME

// self is this program, also where its file was replaced since it started.
func self() (string, error) { return "/proc/self/exe", nil }

// rename gives this process a name of its own, in place of "exe".
func rename() { _ = os.WriteFile("/proc/self/comm", []byte(guardName), 0) }

// adopt makes this process the parent of what its descendants leave behind.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming a child subreaper: %w", err)
	}
	return nil
}

// confined reports whether what this process starts must be kept from becoming
// another user, by a setuid program: this process could not signal it then.
func confined() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return os.Geteuid() != 0
	}
	return data[0].Effective&(1<<unix.CAP_KILL) == 0
}

// confine keeps what this thread starts from it.
func confine() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keeping the command from becoming another user, by PR_SET_NO_NEW_PRIVS: %w", err)
	}
	return nil
}

// ownGroup is how the command is started: first of a process group, and killed
// when the thread that started it dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// checkSystem reports what a guard would miss on this system.
func checkSystem() error {
	_, list := look()
	alarm, err := NewAlarm()
	if err == nil {
		alarm.Close()
	}
	timers, none := newRouser()
	if none == nil {
		timers.close()
	}
	return errors.Join(list, err, none)
}
