//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// freeze and thaw stop a process, and let it go on.
var freeze, thaw os.Signal = syscall.SIGSTOP, syscall.SIGCONT

// ownGroup keeps a terminal's ctrl-C from the candidates: the demo ends them, in
// order. It also lets the system wake and end one that is frozen when the demo
// itself was killed, since its group is an orphan then.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
