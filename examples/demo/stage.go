package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	terminal "golang.org/x/term"
)

// names are the candidates.
var names = []string{"ada", "bob", "cyd", "dan"}

// stage is what the script is played on.
type stage struct {
	screen *screen
	store  *store
	ledger string
	cast   map[string]*process
	news   chan entry // what the candidates do
	died   chan error

	now    entry             // the leader's latest
	fate   map[string]string // what has befallen candidates
	fenced []entry
	events []event
}

// event is a row of the table at the end.
type event struct {
	what string
	from entry // who led before; zero: nobody
	to   entry // who leads now
	took time.Duration
}

// enter starts the candidates.
func (s *stage) enter() error {
	s.cast, s.fate = map[string]*process{}, map[string]string{}
	for _, name := range names {
		p, err := spawn(name, s.store.url, s.ledger, s.news, s.died)
		if err != nil {
			return err
		}
		s.cast[name] = p
		s.screen.say("%s stands (pid %d)", name, p.cmd.Process.Pid)
	}
	return nil
}

// until follows what happens, on the screen, until the candidates do what f looks
// for. It is an error where they have not within the time given.
func (s *stage) until(ctx context.Context, what string, within time.Duration, f func(entry) bool) (entry, error) {
	late := time.NewTimer(within)
	defer late.Stop()
	frame := time.NewTicker(100 * time.Millisecond)
	defer frame.Stop()
	for {
		select {
		case e := <-s.news:
			s.note(e)
			if f(e) {
				return e, nil
			}
		case now := <-frame.C:
			if s.now.Token > 0 {
				s.screen.show(s.now, s.fate[s.now.ID], now)
			}
		case err := <-s.died:
			return entry{}, err
		case <-late.C:
			return entry{}, fmt.Errorf("not within %v: %s", within, what)
		case <-ctx.Done():
			return entry{}, context.Cause(ctx)
		}
	}
}

// note takes in what a candidate did.
func (s *stage) note(e entry) {
	switch {
	case e.Kind == "fenced":
		s.fenced = append(s.fenced, e)
		s.screen.say("%s wants to act with token %d, beat %d, and does not: its view ended %.1f s ago", e.ID, e.Token, e.Beat, e.At.Sub(e.Until).Seconds())
	case e.Token >= s.now.Token:
		s.now = e
	}
	if e.Kind == "begin" {
		s.screen.say("%s leads with token %d", e.ID, e.Token)
	}
}

// run lets the election go on for a while.
func (s *stage) run(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d, errTimePassed)
	defer cancel()
	_, err := s.until(ctx, "", d+time.Minute, func(entry) bool { return false })
	if err == errTimePassed {
		return nil
	}
	return err
}

// successor waits for the next leadership, and notes how long it took since at.
func (s *stage) successor(ctx context.Context, what string, from entry, at time.Time) error {
	e, err := s.until(ctx, "a leader after "+what, patience, func(e entry) bool { return e.Kind == "begin" && e.Token > from.Token })
	if err != nil {
		return err
	}
	s.events = append(s.events, event{what: what, from: from, to: e, took: e.At.Sub(at)})
	return nil
}

// act waits for the leader's next act: just after it, it is in the middle of its
// work, not of an act.
func (s *stage) act(ctx context.Context) (entry, error) {
	return s.until(ctx, "an act of the leader", patience, func(e entry) bool { return e.Kind == "act" })
}

// clear ends all candidates that are left.
func (s *stage) clear() {
	for _, p := range s.cast {
		p.kill()
	}
}

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
