package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
)

// How a candidate's process is told what it is: these are set for it.
const (
	envName   = "LEADERELECTION_DEMO_CANDIDATE"
	envStore  = "LEADERELECTION_DEMO_STORE"
	envLedger = "LEADERELECTION_DEMO_LEDGER"
)

var errToldTo = errors.New("told to stop")

// candidate is one process that campaigns in the election, and does the leader's work
// while it leads.
func candidate(name string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	go obey(cancel)
	js, err := connect(os.Getenv(envStore))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer js.Conn().Close()
	book, err := os.OpenFile(os.Getenv(envLedger), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer book.Close()
	err = leaderelection.Config{
		Decider:      natskv.NewDecider(js, bucket, key, nil),
		LeaderID:     name,
		TermLength:   term,
		MaxClockSkew: skew,
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			(&worker{name: name, book: book, view: view}).work(ctx)
		},
	}.Acquire(ctx)
	if !errors.Is(err, errToldTo) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// obey stops the candidate when it is told to, and ends the process at once when
// whoever started it is gone: then the other end of standard input is closed, on
// every system.
func obey(cancel context.CancelCauseFunc) {
	orders := bufio.NewScanner(os.Stdin)
	if orders.Scan() {
		cancel(errToldTo)
		orders.Scan()
	}
	os.Exit(3)
}

// worker does the leader's work for one leadership.
type worker struct {
	name string
	book *os.File
	view *leaderelection.TimeView
}

// work adds a line to the ledger with each beat. It asks the view immediately
// before each act, not only before the work that leads up to it: anything may
// have happened meanwhile.
//
// Between the question and the act the process can still be frozen. Where that
// must do no harm either, let the resource itself refuse a token that is lower
// than one it has seen; here the act is so quick, after the question, that the
// demo can do without.
func (w *worker) work(ctx context.Context) {
	w.write("begin", 0)
	for n := 1; ; n++ {
		done := time.NewTimer(beat) // stands for the work
		select {
		case <-done.C:
		case <-ctx.Done():
			done.Stop()
		}
		switch {
		case !w.view.ValueInFuture():
			w.tell(w.entry("fenced", n))
			return
		case ctx.Err() != nil:
			w.write("end", n)
			return
		}
		w.write("act", n)
	}
}

func (w *worker) entry(kind string, n int) entry {
	return entry{At: time.Now(), ID: w.name, Token: uint64(w.view.ElectionNumber()), Kind: kind, Beat: n, Until: w.view.Get()}
}

// write adds to the ledger. One write of a short line at the end of a file is one
// step, also among processes.
func (w *worker) write(kind string, n int) {
	e := w.entry(kind, n)
	if _, err := fmt.Fprintln(w.book, e); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	w.tell(e)
}

// tell tells the demo, for the screen.
func (w *worker) tell(e entry) { fmt.Println(e) }
