//go:build unix

// Command child is what leaderelect runs in tests:
//
//	child [stubborn] [leaves] [escapes] LEDGER
//
// It appends to LEDGER a line when it starts, others all the time, and one when it
// ends: "start", "beat" or "end", its token, its pid and the time. Stubborn, it
// ignores signals. With leaves it starts a grandchild that is, and is
// itself no more; with escapes it goes on, and the grandchild is in a session of its own.
//
// It is a program of its own, as dozens run at once: the test's own takes a third of a second
// of a processor to start.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() { os.Exit(child(os.Args[1:])) }

func child(args []string) int {
	var stubborn bool
	for len(args) > 1 {
		switch args[0] {
		case "stubborn":
			stubborn = true
		case "leaves", "escapes":
			next := exec.Command("child", "stubborn", args[len(args)-1])
			next.SysProcAttr = &syscall.SysProcAttr{Setsid: args[0] == "escapes"}
			next.Env = append(os.Environ(), "CHILD_READY=1")
			ready, theirs, err := os.Pipe()
			if err == nil {
				next.ExtraFiles = []*os.File{theirs}
				err = next.Start()
				theirs.Close()
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "child:", err)
				return 1
			}
			_, _ = ready.Read(make([]byte, 1)) // until it has started
			if args[0] == "leaves" {
				return 0
			}
		}
		args = args[1:]
	}
	ledger, err := os.OpenFile(args[0], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	note := func(what string) {
		// One write, so that lines do not mix.
		fmt.Fprintf(ledger, "%s %s %d %d\n", what, os.Getenv("LEADERELECT_TOKEN"), os.Getpid(), time.Now().UnixNano())
	}
	c := make(chan os.Signal, 16)
	signal.Notify(c)
	note("start")
	if os.Getenv("CHILD_READY") != "" {
		os.NewFile(3, "ready").Close()
	}
	beat := time.NewTicker(5 * time.Millisecond)
	for {
		select {
		case <-beat.C:
			note("beat")
		case s := <-c:
			switch s {
			case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT:
				note("asked-" + unix.SignalName(s.(syscall.Signal)))
				if !stubborn {
					note("end")
					return 7
				}
			case syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP:
				note("got-" + unix.SignalName(s.(syscall.Signal)))
			}
		}
	}
}
