package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

const steadyClock = clockBoottime

// self is this program, even if its file was replaced since it started.
func self() (string, error) { return "/proc/self/exe", nil }

// rename gives this process a name of its own, in place of "exe".
func rename() { _ = os.WriteFile("/proc/self/comm", []byte(guardName), 0) }

// adopt makes this process the parent of what its descendants leave behind.
func adopt() error {
	if err := prctl(prSetChildSubreaper, 1); err != nil {
		return fmt.Errorf("becoming a child subreaper: %w", err)
	}
	return nil
}

// confined reports whether what this process starts must be kept from becoming
// another user, by a setuid program: this process could not signal it then.
func confined() bool {
	effective, err := capabilities()
	if err != nil {
		return os.Geteuid() != 0
	}
	return effective&(1<<capKill) == 0
}

// confine keeps what this thread starts from it.
func confine() error {
	if err := prctl(prSetNoNewPrivs, 1); err != nil {
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
	_, _, unlisted := list(1)
	alarm, err := NewAlarm()
	if err == nil {
		alarm.Close()
	}
	timers, none := newRouser()
	if none == nil {
		timers.close()
	}
	return errors.Join(unlisted, err, none)
}
