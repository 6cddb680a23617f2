// Shards divides shards among members that come, leave and die, in half a minute and with
// nothing installed but Go:
//
//	go run ./examples/shards
//
// A table shows who owns what. The members are goroutines here, on a store in memory, each
// with a connection of its own; one that is killed loses that connection, and all that it
// had asked. Each owner acts on its shards all the time, and a ledger that all share counts
// acts that came by an older token than one that was seen before: it must stay at 0.
//
// Where to read on: group.go is what a program of yours would do, script.go what happens to
// it, table.go what is shown.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	term := flag.Duration("term", 3*time.Second, "the members' TermLength, by which everything here goes; the default of the library is 15 s")
	shards := flag.Int("shards", 24, "how many shards there are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := show(ctx, os.Stdout, *term, *shards)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1)
	}
}

// show runs the whole of it.
func show(ctx context.Context, out io.Writer, term time.Duration, shards int) error {
	g := newGroup(term, shards)
	defer g.end()
	t := newTable(out, g)
	if err := play(ctx, g, t); err != nil {
		return err
	}
	return t.verdict()
}
