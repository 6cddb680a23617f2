//go:build unix && !linux

package proctest

import "syscall"

// DieWithParent can do nothing here: standard input ends with the parent, and an
// orphaned group that is stopped gets SIGHUP.
func DieWithParent(a *syscall.SysProcAttr) *syscall.SysProcAttr { return a }
