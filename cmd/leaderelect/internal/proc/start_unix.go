//go:build unix

package proc

import "os"

// A guard begins here, before main and before most packages that need more than the standard
// library are initialised: it does not use the stores' clients, and initialising them would
// take most of its time to start, and of its memory. Packages are initialised in the order of
// their names once all that they import are. So this one, and what it imports, must not import
// packages with late names that are initialised: log/slog, os/exec and path/filepath have
// twice as many packages begin before it.
func init() {
	if len(os.Args) > 1 && os.Args[0] == guardName && os.Args[1] == GuardCommand {
		os.Exit(Guard())
	}
}
