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

// table shows who owns what. On a terminal it is redrawn; elsewhere only lines that stay
// are printed.
type table struct {
	out   io.Writer
	g     *group
	live  bool
	drawn int // lines on the screen
	begun time.Time
	steps []string
}

func newTable(out io.Writer, g *group) *table {
	t := &table{out: out, g: g, begun: time.Now()}
	if f, ok := out.(*os.File); ok && runtime.GOOS != "windows" {
		t.live = terminal.IsTerminal(int(f.Fd()))
	}
	return t
}

// say prints a line that stays.
func (t *table) say(format string, args ...any) {
	t.wipe()
	fmt.Fprintf(t.out, "%5.1f s  %s\n", time.Since(t.begun).Seconds(), fmt.Sprintf(format, args...))
}

// watch shows what goes on for a while.
func (t *table) watch(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); ; {
		t.draw()
		wait := min(time.Until(end), 100*time.Millisecond)
		if wait <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			t.wipe()
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// draw shows each member and its shards, where there is a terminal.
func (t *table) draw() {
	if !t.live {
		return
	}
	t.wipe()
	for _, m := range t.g.members {
		state := ""
		switch {
		case m.gone:
			state = "left"
		case m.dead.Load():
			state = "killed"
		}
		var shards []string
		for _, o := range m.Owned() {
			shards = append(shards, o.Name())
		}
		t.line("  %-4s %-6s %2d  %s", m.id, state, len(shards), strings.Join(shards, " "))
	}
	acts, late, owners := t.g.counted()
	t.line("  %d acts, %d changes of owner, %d overlaps", acts, owners, late)
}

func (t *table) line(format string, args ...any) {
	fmt.Fprintf(t.out, format+"\n", args...)
	t.drawn++
}

// wipe takes the table away.
func (t *table) wipe() {
	if t.drawn > 0 {
		fmt.Fprintf(t.out, "\x1b[%dA\x1b[J", t.drawn)
		t.drawn = 0
	}
}

func (t *table) took(what string, d time.Duration) {
	t.steps = append(t.steps, fmt.Sprintf("  %-62s all owned after %4.1f s", what, d.Seconds()))
}

// counted are the ledger's sums.
func (g *group) counted() (acts, late, owners int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.acts, g.late, g.owners
}

// verdict sums up, and is an error if a shard was owned twice.
func (t *table) verdict() error {
	t.wipe()
	acts, late, owners := t.g.counted()
	fmt.Fprintf(t.out, "\n%s\n\n  %d shards, %d acts, %d changes of owner\n  %d overlaps\n", strings.Join(t.steps, "\n"), t.g.shards, acts, owners, late)
	if late > 0 {
		return fmt.Errorf("%d acts came after a newer owner's", late)
	}
	return nil
}
