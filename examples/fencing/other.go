//go:build !unix

// Fencing shows how a database refuses the late write of a deposed leader. It stops
// a process by SIGSTOP, which this system does not have.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "fencing: this example stops a process by SIGSTOP: run it on Linux or macOS")
	os.Exit(2)
}
