// Package proc runs a leader's command so that it is dead when the leader's view
// ends, whatever happens to the process that started it.
//
// A command is not started directly, but by a guard: this program once more, in
// a session of its own. The candidate tells the guard until when the command may
// live, again with each extension of the lease; the guard lets it go on until
// then and no longer. So a candidate that is killed, stopped (SIGSTOP) or stuck
// takes its command with it in time: when it is killed the guard notices at once,
// when it is stopped the time simply runs out. The other way round, a candidate
// that sees its guard not act in time kills the command itself, and where the
// guard is killed, the kernel kills the command (on Linux, by the parent-death
// signal) and the candidate what the command had started.
//
// On Linux a guard does not stay stopped: a timer has it go on when it has something to
// do. If it has not done it in time (it was stopped again, or a debugger holds it) a
// timer kills it, and that kills the command. A candidate that is stopped goes on when
// its guard dies before its work is done.
//
// The command leads a process group, and signals go to the whole group. On Linux
// the guard also adopts what the command leaves behind (it is a child subreaper),
// so that processes that went into a group or session of their own are found and
// ended too; elsewhere only the group is.
//
// Times until which a command may live are told in two clocks at once, and the
// earlier one counts: the wall clock, and a clock that nobody sets, which on Linux
// (CLOCK_BOOTTIME) also runs while the machine is suspended.
package proc

import (
	"fmt"
	"os"
	"time"
)

// Deadline is a moment on two clocks, of which the earlier counts: wall time can
// be set, and steady time cannot. Both mean the same to all processes of a
// machine.
type Deadline struct {
	Wall   int64 `json:"wall"`   // nanoseconds since 1970
	Steady int64 `json:"steady"` // nanoseconds since boot
}

// At is the deadline at the wall time t, but not later than limit from now by the
// steady clock.
func At(t time.Time, limit time.Duration) Deadline {
	now := time.Now()
	left := min(t.Round(0).Sub(now.Round(0)), limit)
	return Deadline{Wall: t.UnixNano(), Steady: steady() + int64(left)}
}

// Sub is the deadline d earlier.
func (l Deadline) Sub(d time.Duration) Deadline {
	return Deadline{Wall: l.Wall - int64(d), Steady: l.Steady - int64(d)}
}

// in is the deadline d from now.
func in(d time.Duration) Deadline { return At(time.Now().Add(d), d) }

// earlier is the one of two deadlines that comes first, by each clock.
func (l Deadline) earlier(o Deadline) Deadline {
	return Deadline{Wall: min(l.Wall, o.Wall), Steady: min(l.Steady, o.Steady)}
}

// Left is how long it is until the deadline; negative once it is past.
func (l Deadline) Left() time.Duration {
	return min(time.Duration(l.Wall-time.Now().UnixNano()), time.Duration(l.Steady-steady()))
}

// steady is the time since boot, on Linux including suspensions. It cannot fail
// if Check has not.
func steady() int64 {
	t, _ := clockGettime(steadyClock)
	return t
}

// Check reports what commands could not be ended in time for on this system: no
// command may be started then.
func Check() error {
	if _, err := clockGettime(steadyClock); err != nil {
		return fmt.Errorf("reading the clock that nobody sets (clock_gettime %d): %w; does a sandbox forbid it?", steadyClock, err)
	}
	return checkSystem()
}

// GuardCommand is the first argument that makes this program a guard.
const GuardCommand = "guard"

// guardName is what a guard is called, for ps(1), top(1) and killall(1). Neither it
// nor the guard's arguments have anything of the command's, or of this program's
// name: who kills one of these by name is not to kill the guard as well.
const guardName = "election-guard"

// What a guard has open when it starts, apart from the command's files: from a number on that it
// is told, since the command may have files from 3 on.
const (
	fileOrders  = iota
	fileReports // to the candidate
	fileEnd     // of the lifeline: closed when the guard is dead
	fileLife    // the lifeline's other end, which is the candidate's, too
	files       // so many
)

// order is what a candidate tells its guard, as a line of JSON.
type order struct {
	Task   *task         `json:"task,omitempty"`   // the first order, and no other, has it
	Until  *Deadline     `json:"until,omitempty"`  // live no longer than this; the first order has it
	Grace  time.Duration `json:"grace,omitempty"`  // between asking to end and killing; in the first order, and with Stop
	Late   time.Duration `json:"late,omitempty"`   // after Until the guard has failed; in the first order
	Signal int           `json:"signal,omitempty"` // pass this on
	Stop   int           `json:"stop,omitempty"`   // end: send this, and kill after Grace
	Kill   bool          `json:"kill,omitempty"`   // end at once
}

// task is what a guard is there for. Arguments need not be text: []byte keeps them.
type task struct {
	Args   [][]byte `json:"args"`
	Env    [][]byte `json:"env"`
	Setuid bool     `json:"setuid,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// report is what a guard tells its candidate, as a line of JSON.
type report struct {
	Starting bool    `json:"starting,omitempty"` // the command is about to be started: before this nothing of it has run
	Started  int     `json:"started,omitempty"`  // the command's pid
	Exited   *Status `json:"exited,omitempty"`   // the command's, though not yet of all it has started
	Ending   string  `json:"ending,omitempty"`   // the guard ends the command by itself, and why
	Killed   bool    `json:"killed,omitempty"`   // the time that was given for a stop is over; what is left is killed
	Denied   string  `json:"denied,omitempty"`   // a process that the guard may not signal
	Gone     bool    `json:"gone,omitempty"`     // everything is dead
}

// Spec says what to run.
type Spec struct {
	// Args is the command and its arguments.
	Args []string
	// Env is its whole environment, each "name=value".
	Env []string
	// Stdin, Stdout and Stderr are what it reads and writes; nil is nothing.
	Stdin, Stdout, Stderr *os.File
	// Grace is how long it may take to end once it was asked to.
	Grace time.Duration
	// Until is when it must be dead: it is asked to end Grace before, and
	// killed then. Extend moves it.
	Until Deadline
	// Late is how long after Until the guard is held to be stuck, and what it
	// guards is killed from here.
	Late time.Duration
	// Ready is a guard that waits for this command, with these files; nil: one is started now.
	// Start has used it up, or closed it.
	Ready *Ready
	// Setuid lets the command become another user, by sudo(8) or another setuid
	// program, though what it becomes could then not be ended.
	Setuid bool
	// Remove are files and empty directories to remove at the end if this
	// process is not there any more to do it.
	Remove []string
	// Logger gets what is out of the ordinary. It is needed.
	Logger Logger
}

// Logger is what is needed of a *slog.Logger. To import that would have a guard begin later:
// see start_unix.go.
type Logger interface {
	Warn(msg string, args ...any)
	Error(msg string, args ...any)
}

// Status is how a command ended.
type Status struct {
	// Code is its exit code; 128 and the signal's number where a signal killed
	// it, 127 if it was not found, 126 if it could not be started, as
	// shells have it.
	Code int `json:"code"`
	// Signal is the number of the signal that killed it, or 0.
	Signal int `json:"signal,omitempty"`
	// Failure is why it was not started, or why its end is not known.
	Failure string `json:"failure,omitempty"`
	// Unstarted: it is certain that nothing of it has run.
	Unstarted bool `json:"unstarted,omitempty"`
	// Expired: it was not ended by the candidate's request, nor by itself, but by
	// its guard, since its time had run out.
	Expired bool `json:"expired,omitempty"`
	// Killed: it, or something that it had started, had to be killed, since it
	// had not ended within the time that it was given.
	Killed bool `json:"killed,omitempty"`
}

// Exit codes that no command chose, as shells and timeout(1) have them.
const (
	CodeFailed      = 125 // leaderelect itself failed
	CodeCannotStart = 126
	CodeNotFound    = 127
)
