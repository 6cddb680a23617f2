//go:build unix

package proc

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// settled is how long a child is left to the code that has started it, before it is taken
// for nobody's: os/exec awaits its own at once.
const settled = time.Second

// Reap awaits orphans if this is the first process of a container, which every
// orphan becomes a child of: else the dead would fill its table of processes. It
// goes on until stop is called.
func Reap() (stop func()) {
	if os.Getpid() != 1 {
		return func() {}
	}
	return reapAll()
}

func reapAll() (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCHLD)
	done := make(chan struct{})
	go func() {
		before := zombies()
		again := time.NewTimer(settled)
		defer again.Stop()
		for {
			select {
			case <-done:
				return
			case <-c:
				if len(before) > 0 {
					continue // the next look is on its way
				}
			case <-again.C:
			}
			var left []int
			for _, pid := range zombies() {
				if !slices.Contains(before, pid) {
					left = append(left, pid)
				} else {
					_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // other code may have awaited it meanwhile
				}
			}
			if before = left; len(left) > 0 {
				again.Reset(settled)
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(done)
	}
}
