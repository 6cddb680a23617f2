package proc

import "time"

// GuardCommand is the first argument that makes this program a guard.
const GuardCommand = "guard"

// marker is an environment variable that tells a command's processes apart from
// all others.
const marker = "LEADERELECT_GUARD"

// order is what a candidate tells its guard, as a line of JSON on fd 3.
type order struct {
	Until  *Deadline     `json:"until,omitempty"`  // live no longer than this; the first order has it
	Grace  time.Duration `json:"grace,omitempty"`  // between asking to end and killing; in the first order, and with Stop
	Signal int           `json:"signal,omitempty"` // pass this on
	Stop   int           `json:"stop,omitempty"`   // end: send this, and kill after Grace
	Kill   bool          `json:"kill,omitempty"`   // end at once
}

// report is what a guard tells its candidate, as a line of JSON on fd 4.
type report struct {
	Started int     `json:"started,omitempty"` // the command's pid
	Exited  *Status `json:"exited,omitempty"`  // the command's, though not yet of all it has started
	Ending  string  `json:"ending,omitempty"`  // the guard ends the command by itself, and why
	Gone    bool    `json:"gone,omitempty"`    // everything is dead
}

// Status is how a command ended.
type Status struct {
	// Code is its exit code; 128 and the signal's number where a signal killed
	// it, 127 where it was not found, 126 where it could not be started, as
	// shells have it.
	Code int `json:"code"`
	// Signal is the number of the signal that killed it, or 0.
	Signal int `json:"signal,omitempty"`
	// Failure is why it was not started, or why its end is not known.
	Failure string `json:"failure,omitempty"`
	// Expired: it was not ended by the candidate's wish, nor by itself, but by
	// its guard, since its time had run out.
	Expired bool `json:"expired,omitempty"`
}

// Exit codes that no command chose, as shells and timeout(1) have them.
const (
	CodeFailed      = 125 // leaderelect itself failed
	CodeCannotStart = 126
	CodeNotFound    = 127
)
