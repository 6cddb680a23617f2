//go:build unix

package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// Find is where the command name is, or why it cannot be run. A setuid program is
// one of these unless setuid says to accept it, if this process could not end what
// it becomes.
func Find(name string, setuid bool) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil || setuid || !confined() {
		return path, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode()&fs.ModeSetuid != 0 && int(owner.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s is a setuid program: leaderelect may not end what becomes another user's, so it might run on while another candidate leads; "+
			"run leaderelect itself as that user, or as root, or take that risk with --allow-setuid", path)
	}
	return path, nil
}

// CodeOf is the exit code for a command that Find does not find, or that cannot be
// started.
func CodeOf(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return CodeNotFound
	}
	return CodeCannotStart
}
