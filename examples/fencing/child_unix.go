//go:build unix && !linux

package main

import "syscall"

// child keeps a terminal's ctrl-C from a process, which this one ends in order.
func child(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
