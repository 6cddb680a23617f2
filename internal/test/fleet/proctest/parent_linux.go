package proctest

import "syscall"

// DieWithParent lets the kernel kill a process when its parent is dead, in
// whatever state either is. The end of standard input does not reach a stopped
// process; and the SIGHUP to an orphaned group, which elsewhere has to do, is sent
// only where the stop is complete when the parent dies.
func DieWithParent(a *syscall.SysProcAttr) *syscall.SysProcAttr {
	a.Pdeathsig = syscall.SIGKILL
	return a
}
