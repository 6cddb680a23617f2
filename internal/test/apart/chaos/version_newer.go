//go:build linux && newer

package main

import (
	"fmt"

	"github.com/c8e606e4/leaderelection"
)

// generation is how often a newer version of the library has written the record. It is
// built with the overlay of package newer.
func generation(e leaderelection.RaceEntry) string { return fmt.Sprint(e.Generation) }
