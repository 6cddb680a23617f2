//go:build unix && !linux

package proctest

import "syscall"

// dieWithParent can do nothing here: standard input ends with the parent, and an
// orphaned group that is stopped gets SIGHUP.
func dieWithParent(a *syscall.SysProcAttr) *syscall.SysProcAttr { return a }
