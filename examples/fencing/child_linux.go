package main

import "syscall"

// child keeps a terminal's ctrl-C from a process, which this one ends in order, and
// has the kernel send it a signal where this one is killed: the end of its standard
// input does not reach one that is stopped.
func child(death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death}
}
