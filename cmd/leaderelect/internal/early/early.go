// Package early lets the program start without a garbage collection. What all the stores'
// clients make when they are initialised comes to nearly the 4 MB at which the first one
// would begin; it would take a fourth of the processor's time of a short command. The package
// needs next to nothing, and so is initialised before most others.
package early

import (
	"os"
	"runtime/debug"
)

// percent has the first collection begin at 16 MB (4 MB x GOGC / 100).
const percent = 400

// usual is what GOGC is where nobody has set it.
const usual = 100

var postponed = postpone()

func postpone() bool {
	if os.Getenv("GOGC") != "" {
		return false
	}
	debug.SetGCPercent(percent)
	return true
}

// Over has a program that goes on for long collect as usual.
func Over() {
	if postponed {
		debug.SetGCPercent(usual)
	}
}
