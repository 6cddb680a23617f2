//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// worker is what works on the registers for one leadership, and writes down what it does.
type worker struct {
	life      string // whose ledger lines these are
	by        string // what begins the values that it writes: no two workers have it in common
	number    uint64
	since     int64 // of two workers of one leadership, the later has the greater
	registers string
	ledger    *ledger
	may       func() bool // whether it may still act
	over      func() bool // whether it has been asked to end
	first     line        // what its first line says besides
}

// pace is how long it waits between two acts.
const pace = 5 * time.Millisecond

// ask begins a line: it is true that the worker might act at a time from B to A.
func (w *worker) ask(k kind) (line, bool) {
	l := w.first
	l.Kind, l.By, l.N, l.B = k, w.life, w.number, now()
	ok := w.may()
	l.A = now()
	return l, ok
}

// work works as long as it may, and reports whether it knows what has become of its writes.
// Reads are answered from memory, as a leader may that is the only one: they are right
// only if no other leader writes meanwhile.
func (w *worker) work() (known bool) {
	r := newClient(w.registers, w.number, w.since)
	var memory content
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for writes := 0; ; <-tick.C {
		choice := rand.IntN(3)
		l, ok := w.ask([]kind{act, read, write}[choice])
		if !ok || w.over() {
			return true
		}
		l.Key = keys[rand.IntN(len(keys))]
		switch {
		case memory.Values == nil:
			l.Kind, l.Key = act, ""
			memory, _ = r.open(context.Background()) // or again
		case choice == 1:
			l.V, l.R = memory.Values[l.Key], l.A
		case choice == 2:
			writes++
			l.V = fmt.Sprintf("%s-%d-%d", w.by, w.number, writes)
			err := r.write(context.Background(), l.Key, l.V)
			l.R = now()
			switch {
			case err == nil:
				l.O, memory.Values[l.Key] = "ok", l.V
			case errors.Is(err, errFenced):
				l.O = "refused"
			default:
				l.O = "unknown"
			}
		}
		w.ledger.add(l)
		w.first = line{}
		if l.O == "unknown" || l.O == "refused" {
			return false // what is in memory may not be what is there
		}
	}
}
