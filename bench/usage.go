package main

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// usage is what a process has used so far.
type usage struct {
	CPU      int64 `json:"cpu"`      // nanoseconds, in user and in system mode
	Switches int64 `json:"switches"` // between it and other processes, by its own will or not
	Memory   int64 `json:"memory"`   // bytes that are resident now; 0 where the system does not say
}

// used is what this process has used.
func used() usage {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return usage{}
	}
	var size, resident int64
	if text, err := os.ReadFile("/proc/self/statm"); err == nil { // of Linux
		_, _ = fmt.Fscan(bytes.NewReader(text), &size, &resident)
	}
	switches := int64(u.Nvcsw) + int64(u.Nivcsw) //nolint:unconvert // not everywhere 64 bits
	return usage{CPU: u.Utime.Nano() + u.Stime.Nano(), Switches: switches, Memory: resident * int64(os.Getpagesize())}
}
