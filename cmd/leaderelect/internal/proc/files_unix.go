//go:build unix

package proc

import (
	"os"
	"runtime"
	"syscall"
)

// mostInherited is how far up files are looked for that whoever started this program has left
// open for the command, as a shell does for 3>FILE.
const mostInherited = 256

// none is not a file, for the system's list of those that a process is to have.
const none = ^uintptr(0)

// inherited are the files from 3 on that a process which this one starts has anyway: they are
// not this process's own, since these are all closed then. What there is none of is none.
func inherited() (all []uintptr) {
	for fd := 3; fd < mostInherited; fd++ {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno != 0 || flags&syscall.FD_CLOEXEC != 0 {
			continue
		}
		for len(all) < fd-3 {
			all = append(all, none)
		}
		all = append(all, uintptr(fd))
	}
	return all
}

// spawn starts a process in a session of its own, with the standard files (nil is nothing),
// what is inherited, and own from number first on.
func spawn(path string, args, env []string, standard [3]*os.File, kept []uintptr, own []*os.File) (*os.Process, error) {
	var files []uintptr
	for _, f := range standard {
		if f == nil {
			nothing, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				return nil, err
			}
			defer nothing.Close()
			f = nothing
		}
		files = append(files, f.Fd())
	}
	files = append(files, kept...)
	for _, f := range own {
		files = append(files, f.Fd())
	}
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	runtime.KeepAlive(standard)
	runtime.KeepAlive(own)
	if err != nil {
		return nil, &os.PathError{Op: "fork/exec", Path: path, Err: err}
	}
	return os.FindProcess(pid)
}

// passedOn is from which number on files are that this program passes on to what it starts: programs
// give the lower ones to their own children.
const passedOn = 100

// PassOn has every process that this one starts from now on, guards and commands above all, inherit f.
func PassOn(f *os.File) error {
	for _, least := range []uintptr{passedOn, 3} {
		fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_DUPFD, least)
		if errno == 0 && fd < mostInherited {
			return nil
		}
		if errno == 0 {
			_ = syscall.Close(int(fd))
		} else if errno != syscall.EINVAL { // EINVAL: so many files may not be open
			return errno
		}
	}
	return syscall.EMFILE
}
