//go:build unix

package proc

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// Ready is a guard that waits for its task: whoever has one starts a command without first starting
// a process of this program, which takes longer than most commands do. It holds the files that
// it was made with, sleeps, and ends with this process.
type Ready struct {
	guard               *os.Process
	pipe, life, reports *os.File
	ended               chan struct{} // it has been awaited
}

// Prepare starts a guard for a command with these files; see Spec.
func Prepare(stdin, stdout, stderr *os.File) (r *Ready, err error) {
	if err := errors.Join(Check(), adopt()); err != nil {
		return nil, err
	}
	path, err := self()
	if err != nil {
		return nil, fmt.Errorf("finding this program to guard the command with: %w", err)
	}
	r = &Ready{ended: make(chan struct{})}
	theirs, err := r.connect()
	if err != nil {
		return nil, err
	}
	defer closeAll(theirs)
	kept := inherited()
	args := []string{guardName, GuardCommand, "--of", strconv.Itoa(os.Getpid()), "--files", strconv.Itoa(3 + len(kept))}
	own := append(slices.Clone(theirs), r.life) // fileOrders and so on
	if r.guard, err = guards.begin(func() (*os.Process, error) {
		return spawn(path, args, settings(), [3]*os.File{stdin, stdout, stderr}, kept, own)
	}); err != nil {
		closeAll([]*os.File{r.pipe, r.life, r.reports})
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	go func() {
		_, _ = r.guard.Wait() // what matters is in its reports
		guards.gone(r.guard.Pid)
		close(r.ended)
	}()
	return r, nil
}

// settings are what Go's runtime reads of the environment. A guard has nothing else of it.
func settings() []string {
	env := []string{} // not nil, which would be all of it
	for _, name := range []string{"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOTRACEBACK", "GORACE"} {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Close ends a guard that has not been given a task, and returns when it has ended. A nil one is
// none.
func (r *Ready) Close() {
	if r == nil {
		return
	}
	closeAll([]*os.File{r.pipe, r.reports})
	_ = r.guard.Signal(syscall.SIGKILL)
	<-r.ended
	closeAll([]*os.File{r.life})
}

// connect makes the pipes to the guard, theirs being its ends.
func (r *Ready) connect() (theirs []*os.File, err error) {
	var all []*os.File
	defer func() {
		if err != nil {
			closeAll(all)
		}
	}()
	orders, pipe, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("a pipe to the guard: %w", err)
	}
	all = []*os.File{orders, pipe}
	reports, answers, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("a pipe from the guard: %w", err)
	}
	all = append(all, reports, answers)
	life, end, err := lifeline()
	if err != nil {
		return nil, err
	}
	r.pipe, r.life, r.reports = pipe, life, reports
	return []*os.File{orders, answers, end}, nil
}
