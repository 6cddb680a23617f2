//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// canFreeze: a process can be stopped and continued here.
const canFreeze = true

// ownGroup keeps a terminal's ctrl-C from the candidates: the demo ends them, in
// order. It also lets the system wake and end one that is frozen when the demo
// itself was killed, since its group is an orphan then.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func (p *process) freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) thaw() error   { return p.cmd.Process.Signal(syscall.SIGCONT) }
