//go:build unix

package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// Find is where the command name is, or why it cannot be run, as far as can be seen. A setuid
// program cannot unless setuid says to accept it, if this process could not end what
// it becomes.
func Find(name string, setuid bool) (string, error) {
	path, err := lookPath(name)
	if err == nil {
		err = interpreted(path)
	}
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

var (
	errNotFound = errors.New("executable file not found in $PATH")
	errHere     = errors.New("found only in the current directory, which $PATH names: write ./ before it")
)

// lookPath is exec.LookPath, which would have a guard begin later: see start_unix.go.
func lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		path := dir + "/" + name
		if dir == "" {
			path = "./" + name
		}
		switch {
		case executable(path) != nil:
		case !strings.HasPrefix(dir, "/"):
			return path, &os.PathError{Op: "finding the command", Path: name, Err: errHere}
		default:
			return path, nil
		}
	}
	return "", &os.PathError{Op: "finding the command", Path: name, Err: errNotFound}
}

// executable reports why path cannot be executed, as far as can be seen.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return &os.PathError{Op: "executing", Path: path, Err: syscall.EISDIR}
	case info.Mode()&0o111 == 0, syscall.Access(path, mayExecute) != nil:
		return &os.PathError{Op: "executing", Path: path, Err: fs.ErrPermission}
	}
	return nil
}

// mayExecute is access(2)'s X_OK.
const mayExecute = 1

// longestLine is how much of a script's first line the kernel reads.
const longestLine = 256

// interpreted reports what a script's first line names that is not there: its interpreter, or
// the one that env(1) is to look for. A file that is not a script, or cannot be read, passes.
func interpreted(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return nil // who may execute it need not be able to read it
	}
	defer file.Close()
	head := make([]byte, longestLine)
	n, _ := file.Read(head)
	line, script := strings.CutPrefix(string(head[:n]), "#!")
	line, _, _ = strings.Cut(line, "\n")
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if !script || len(words) == 0 {
		return nil
	}
	wrong := func(name string, why error) error {
		if strings.HasSuffix(name, "\r") {
			why = errors.New("the line ends with a carriage return, as on Windows: remove it")
		}
		return fmt.Errorf("%s cannot be run: its first line names %q: %v", path, name, why)
	}
	if err := executable(words[0]); err != nil {
		return wrong(words[0], err)
	}
	if !strings.HasSuffix(words[0], "/env") {
		return nil
	}
	for _, word := range words[1:] {
		switch {
		case word == "-S", strings.Contains(word, "="):
		case strings.HasPrefix(word, "-"):
			return nil // it may be anything
		default:
			if _, err := lookPath(word); errors.Is(err, errNotFound) || strings.Contains(word, "/") && err != nil {
				return wrong(word, err)
			}
			return nil
		}
	}
	return nil
}

// CodeOf is the exit code for a command that Find does not find, or that cannot be
// started.
func CodeOf(err error) int {
	if errors.Is(err, errNotFound) || errors.Is(err, fs.ErrNotExist) {
		return CodeNotFound
	}
	return CodeCannotStart
}

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
