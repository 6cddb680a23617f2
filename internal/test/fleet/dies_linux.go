package fleet

import "syscall"

// dieWithParent lets the kernel kill a process when its parent is dead, in whatever state either is. The end of
// standard input does not reach a stopped process, and the SIGHUP to an orphaned group is sent only if the stop is
// complete when the parent dies.
func dieWithParent(a *syscall.SysProcAttr) *syscall.SysProcAttr {
	a.Pdeathsig = syscall.SIGKILL
	return a
}
