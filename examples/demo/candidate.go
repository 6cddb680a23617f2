package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
)

// candidate is one process that campaigns in the election, and does the leader's work
// while it leads. It ends when its standard input does: when it is told to, or when whoever
// started it is gone.
func candidate(name, election string) int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	err := leaderelection.Config{
		Decider:      file.NewDecider(election, nil),
		LeaderID:     name,
		TermLength:   term,
		MaxClockSkew: skew,
		OnElected:    func(ctx context.Context, view *leaderelection.TimeView) { work(ctx, name, view) },
	}.Acquire(ctx)
	if !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// work adds a line to the ledger with each beat. It asks the view immediately before
// each act, not only before the work that leads up to it: anything may have happened
// meanwhile.
//
// Between the question and the act the process can still be frozen. If that must do no
// harm either, let the resource itself refuse a token that is lower than one it has seen.
// Here the act is so quick, after the question, that the demo can do without.
func work(ctx context.Context, name string, view *leaderelection.TimeView) {
	write := func(kind string) {
		// One write of a short line to a pipe is one step, also among processes.
		e := entry{At: time.Now(), Name: name, Token: uint64(view.ElectionNumber()), Kind: kind, Until: view.Get()}
		if err := json.NewEncoder(os.Stdout).Encode(e); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	write(begin)
	for {
		select {
		case <-time.After(beat): // stands for the work
		case <-ctx.Done():
		}
		switch {
		case !view.ValueInFuture():
			write(fenced)
			return
		case ctx.Err() != nil:
			write(end)
			return
		}
		write(act)
	}
}

// entry is a line of the ledger.
type entry struct {
	At    time.Time
	Name  string
	Token uint64
	Kind  string
	Until time.Time // the end of the view, at that time
}

// The kinds of entries.
const (
	begin  = "begin"  // of a leadership
	act    = "act"    // of the leader
	end    = "end"    // in good order
	fenced = "fenced" // an act that was not made, because the view was over
)

func (e entry) String() string {
	left := e.Until.Sub(e.At).Seconds()
	switch e.Kind {
	case begin:
		return fmt.Sprintf("%s leads with token %d", e.Name, e.Token)
	case end:
		return fmt.Sprintf("%s has wound down", e.Name)
	case fenced:
		return fmt.Sprintf("%s wants to act with token %d, and does not: its view ended %.1f s ago", e.Name, e.Token, -left)
	}
	return fmt.Sprintf("%s acts with token %d, in a view that lasts %.1f s more", e.Name, e.Token, left)
}
