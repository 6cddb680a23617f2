// Batchjob shows Config.Run: a job that is started on every machine, and must be
// done by one of them at a time.
//
//	go run ./examples/batchjob
//
// Three machines start the night's billing at once. One becomes leader, and fails
// half-way; the next one goes on where it stopped; the last finds nothing left to
// do. No bill is sent twice.
//
// The election is kept in memory, so that there is nothing to install, and the
// machines are goroutines. In a program of yours each is a process of its own, and
// the decider one of a real store; nothing else changes.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

func main() { night(context.Background(), os.Stdout) }

// night lets three machines do the billing.
func night(ctx context.Context, out io.Writer) *table {
	election := memory.NewDecider()
	bills := &table{out: out, due: []string{"Abel", "Baker", "Chan", "Diaz", "Eze", "Fox"}, jam: 2}
	var machines sync.WaitGroup
	for _, name := range []string{"machine-1", "machine-2", "machine-3"} {
		machines.Go(func() {
			err := le.Config{
				Decider:      election.Handle(),
				LeaderID:     name,
				TermLength:   2 * time.Second,
				MaxClockSkew: 100 * time.Millisecond,
			}.Run(ctx, func(ctx context.Context, view *le.TimeView) error {
				return job(ctx, view, bills)
			})
			bills.say("%s: Run returned %v", name, err)
		})
	}
	machines.Wait()
	return bills
}

// job sends what bills are due. It asks the view before each: when that is over,
// another machine may have begun already.
func job(ctx context.Context, view *le.TimeView, bills *table) error {
	for {
		if !view.ValueInFuture() {
			return fmt.Errorf("not the leader any more: %w", cmp.Or(context.Cause(ctx), le.ErrExpired)) // ctx may end a moment after the view
		}
		if more, err := bills.sendNext(view.ElectionNumber()); !more {
			return err
		}
	}
}

var errJam = errors.New("paper jam")

// table is what the machines share besides the election: a table of customers.
type table struct {
	mu    sync.Mutex
	out   io.Writer
	due   []string // customers whose bill has not been sent
	jam   int      // after how many bills the printer jams, once
	fence le.ElectionNumber
}

// sendNext sends one bill, if any is due. A table is also the place to refuse a
// machine that was frozen after it asked its view: its token is lower than one
// that was seen here before.
func (t *table) sendNext(token le.ElectionNumber) (more bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.jam--; {
	case token < t.fence:
		return false, fmt.Errorf("token %d comes after %d", token, t.fence)
	case t.jam == -1:
		return false, errJam
	case len(t.due) == 0:
		return false, nil
	}
	t.fence = token
	fmt.Fprintf(t.out, "bill for %-6s with fencing token %d\n", t.due[0], token)
	t.due = t.due[1:]
	return true, nil
}

func (t *table) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, format+"\n", args...)
}
