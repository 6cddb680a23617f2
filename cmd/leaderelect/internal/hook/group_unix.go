//go:build unix

package hook

import (
	"os/exec"
	"syscall"
)

// group puts cmd into a process group of its own, all of which is killed with it.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
