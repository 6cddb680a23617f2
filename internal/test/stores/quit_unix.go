//go:build unix

package stores

import "syscall"

// quit sends a process SIGQUIT, PostgreSQL's word for an immediate shutdown.
func quit(pid int) { _ = syscall.Kill(pid, syscall.SIGQUIT) }
