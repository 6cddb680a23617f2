//go:build !linux

package main

import "syscall"

// withParent can do nothing here: standard input ends with the parent.
func withParent(a *syscall.SysProcAttr) *syscall.SysProcAttr { return a }
