//go:build unix

package stores

import (
	"os/exec"
	"syscall"
)

// ownGroup makes cmd the first of a process group of its own.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills the group of cmd, which must not have been awaited yet: its
// number would be another's.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// quit sends a process SIGQUIT, PostgreSQL's word for an immediate shutdown.
func quit(pid int) { _ = syscall.Kill(pid, syscall.SIGQUIT) }
