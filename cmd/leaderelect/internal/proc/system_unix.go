//go:build unix && !linux

package proc

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const steadyClock = unix.CLOCK_MONOTONIC

func self() (string, error) { return os.Executable() }

// adopt does nothing: what leaves the command's process group is not followed.
func adopt() error { return nil }

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func descendants(int) []int { return nil }

const canList = false

func members(int, string) []int { return nil }
