//go:build !unix

package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// signalsTo is signals with what is done by the second interrupt. There are no other signals.
func (a *app) signalsTo(cancel context.CancelCauseFunc, _ commands, kill func()) (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	done := make(chan struct{})
	go func() {
		for asked := false; ; asked = true {
			select {
			case <-c:
				if asked {
					kill()
				}
				cancel(&signalled{syscall.SIGINT})
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(done)
	}
}

// openFiles is how many files this process may have open.
func openFiles() int { return 1024 }

// inherited fails: here a number says nothing of a file.
func inherited(int) (*os.File, error) { return nil, errors.New("it is for Unix only") }

// journalled: there is no systemd.
func journalled(io.Writer) bool { return false }

// readerGone does nothing: that nobody reads any more is seen at the next write.
func readerGone(*os.File, func()) {}
