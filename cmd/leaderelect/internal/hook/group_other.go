//go:build !unix

package hook

import (
	"os/exec"
	"time"
)

// group does nothing: only the command itself is killed.
func group(*exec.Cmd) {}

// disband does nothing.
func disband(*exec.Cmd, time.Duration) error { return nil }
