//go:build unix

package hook

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// group puts cmd into a process group of its own, all of which is asked to end with
// it.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT) // what is stopped cannot end
		return err
	}
}

// disband waits until the group of a command that has been awaited is gone, and kills
// what is left of it after patience. A group's number is not given away while
// anything is left of it.
func disband(cmd *exec.Cmd, patience time.Duration) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for limit := time.Now().Add(patience); time.Now().Before(limit); <-look.C {
		if errors.Is(syscall.Kill(-cmd.Process.Pid, 0), syscall.ESRCH) {
			return nil
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("what it had started cannot be killed: %w", err)
	}
	return nil
}
