//go:build unix && !linux

package fleet

import "syscall"

// dieWithParent can do nothing here.
func dieWithParent(a *syscall.SysProcAttr) *syscall.SysProcAttr { return a }
