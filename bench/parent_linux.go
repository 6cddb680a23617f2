package main

import "syscall"

// withParent lets the kernel kill a process when its parent is dead, also where it
// is stopped.
func withParent(a *syscall.SysProcAttr) *syscall.SysProcAttr {
	a.Pdeathsig = syscall.SIGKILL
	return a
}
