//go:build !unix

package stores

import (
	"os/exec"
)

// ownGroup does nothing where there are no process groups: the keeper, a POSIX
// shell, is not to be had there either, so that tests are skipped before this.
func ownGroup(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

// quit does nothing where there are no signals: no server is started there either.
func quit(int) {}
