package proc

import (
	"os"
	"time"
)

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
