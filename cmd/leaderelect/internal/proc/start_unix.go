//go:build unix

package proc

import "os"

// A guard begins here, before main and before the packages that need more than the standard
// library are initialised: it does not use the stores' clients, and initialising
// them would take most of its time to start, and of its memory.
func init() {
	if len(os.Args) > 1 && os.Args[0] == guardName && os.Args[1] == GuardCommand {
		os.Exit(Guard())
	}
}
