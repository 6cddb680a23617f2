package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	terminal "golang.org/x/term"
)

// screen shows what happens: lines that stay, and on a terminal a last line that
// lives.
type screen struct {
	out   io.Writer
	live  bool
	begun time.Time
	last  time.Time // when the state was last shown as a line of its own
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, begun: time.Now()}
	if f, ok := out.(*os.File); ok && runtime.GOOS != "windows" {
		s.live = terminal.IsTerminal(int(f.Fd()))
	}
	return s
}

// say prints a line that stays.
func (s *screen) say(format string, args ...any) {
	s.wipe()
	fmt.Fprintf(s.out, "%5.1f s  %s\n", time.Since(s.begun).Seconds(), fmt.Sprintf(format, args...))
}

// show replaces the living line. Where there is none, it prints one a second.
// Fate is what has befallen the leader, if anything has.
func (s *screen) show(e entry, fate string, now time.Time) {
	left := max(e.Until.Sub(now), 0)
	if e.Kind == "end" {
		left = 0
	}
	const width = 24
	full := min(int(left*width/(term-skew)), width)
	bar := strings.Repeat("█", full) + strings.Repeat("░", width-full)
	state := "leads"
	switch {
	case left == 0:
		state = "led"
	case fate != "":
		state = "(" + fate + ")"
	}
	line := fmt.Sprintf("%s %-8s token %d  beat %-3d view %s %3.1f s left", e.ID, state, e.Token, e.Beat, bar, left.Seconds())
	switch {
	case s.live:
		fmt.Fprintf(s.out, "\r\x1b[K         %s", line)
	case now.Sub(s.last) >= time.Second:
		s.last = now
		s.say("  %s", line)
	}
}

// wipe takes the living line away.
func (s *screen) wipe() {
	if s.live {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
}
