//go:build !unix

package main

import (
	"errors"
	"os/exec"
)

// canFreeze: there is no SIGSTOP here, so the demo leaves that part out.
const canFreeze = false

var errNoFreeze = errors.New("processes cannot be frozen on this system")

func ownGroup(*exec.Cmd) {}

func (p *process) freeze() error { return errNoFreeze }
func (p *process) thaw() error   { return errNoFreeze }
