//go:build linux

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"golang.org/x/sys/unix"

	"github.com/c8e606e4/leaderelection/internal/test/fleet"
)

// leaderships are all, by token, and what is wrong with them.
func leaderships(all []line) ([]*fleet.Leadership, []string) {
	acts := make([]fleet.Act, len(all))
	for i, l := range all {
		acts[i] = fleet.Act{By: l.By, Token: l.N, Before: l.B, After: l.A}
	}
	return fleet.Judge(acts)
}

// forgotten are leaderships that began with a record that says less of what a newer version
// of the library had written than one before: an older version has not handed it on.
func forgotten(all []line) (found []string) {
	var told []line // the first line of each leadership, unless it is a command's
	for _, l := range all {
		if l.G != "" {
			told = append(told, l)
		}
	}
	slices.SortFunc(told, func(a, b line) int { return cmp.Compare(a.N, b.N) })
	var top uint64
	for _, l := range told {
		generation, _ := strconv.ParseUint(l.G, 10, 64)
		if generation < top {
			found = append(found, fmt.Sprintf("%s has token %d, and a newer version's field is %d in its record, after %d", l.By, l.N, generation, top))
		}
		top = max(top, generation)
	}
	return found
}

// kinds are how many leaderships each kind of candidate had.
func kinds(all []*fleet.Leadership) (older, newer, command int) {
	for _, r := range all {
		switch {
		case strings.HasSuffix(r.By, byNewer):
			newer++
		case strings.HasSuffix(r.By, byCommand):
			command++
		default:
			older++
		}
	}
	return older, newer, command
}

// linearizable checks what clients were told of each register against the one register
// that there should be. What was written though nobody was told is in held.
func linearizable(all []line, held content) (ops int, found []string) {
	byKey := map[string][]porcupine.Operation{}
	told := map[string]bool{}
	for _, l := range all {
		switch {
		case l.Kind == read:
			byKey[l.Key] = append(byKey[l.Key], porcupine.Operation{Input: input{false, l.V}, Call: l.B, Return: l.R})
		case l.Kind == write && l.O == "ok":
			told[l.V] = true
			byKey[l.Key] = append(byKey[l.Key], porcupine.Operation{Input: input{true, l.V}, Call: l.B, Return: l.R})
		case l.Kind == write:
			if at, applied := held.Applied[l.V]; applied {
				told[l.V] = true
				byKey[l.Key] = append(byKey[l.Key], porcupine.Operation{Input: input{true, l.V}, Call: l.B, Return: max(at, l.R)})
			}
		}
	}
	// A process that was killed in between has not written down what it wrote.
	written := map[string]string{}
	for _, l := range all {
		if l.Kind == read {
			written[l.V] = l.Key
		}
	}
	for key, v := range held.Values {
		written[v] = key
	}
	for v, at := range held.Applied {
		if key := written[v]; !told[v] && key != "" {
			byKey[key] = append(byKey[key], porcupine.Operation{Input: input{true, v}, Call: at, Return: at})
		}
	}
	for _, key := range keys {
		ops += len(byKey[key])
		if r := porcupine.CheckOperationsTimeout(register, byKey[key], time.Minute); r != porcupine.Ok {
			found = append(found, fmt.Sprintf("register %s is not linearizable (%s): a leader answered from memory what was not so any more", key, r))
		}
	}
	return ops, found
}

type input struct {
	write bool
	value string
}

// register is one value.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, in, _ any) (bool, any) {
		if i := in.(input); i.write {
			return true, i.value
		} else {
			return state == i.value, state
		}
	},
	DescribeOperation: func(in, _ any) string { return fmt.Sprint(in) },
}

// calm is a time in which nothing was done to anybody.
type calm struct{ from, to int64 }

// back is how long after the beginning of each calm somebody acted.
func back(all []line, calms []calm) (took []time.Duration, never int) {
	slices.SortFunc(all, func(a, b line) int { return cmp.Compare(a.B, b.B) })
	for _, c := range calms {
		i, _ := slices.BinarySearchFunc(all, c.from, func(l line, t int64) int { return cmp.Compare(l.B, t) })
		if i == len(all) || all[i].B > c.to {
			never++
			continue
		}
		took = append(took, time.Duration(all[i].B-c.from))
	}
	slices.Sort(took)
	return took, never
}

// gap is the longest time without an act in a calm, after the first one in it.
func gap(all []line, calms []calm) (longest time.Duration) {
	for _, c := range calms {
		var last int64
		for _, l := range all { // sorted by back
			if l.B < c.from || l.B > c.to {
				continue
			}
			if last != 0 {
				longest = max(longest, time.Duration(l.B-last))
			}
			last = l.A
		}
	}
	return longest
}

// names are the faults that were made, with how often.
func names(faults map[string]int) string {
	var all []string
	for name, n := range faults {
		all = append(all, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// proofs is how often a candidate says that it had proof of a leader's death.
func (w *world) proofs() (n int) {
	for _, p := range w.candidates {
		text, _ := os.ReadFile(filepath.Join(w.dir, p.name+".log")) // without it there were none
		n += strings.Count(string(text), "a process of this machine that held the record is dead")
	}
	return n
}

// line is what a candidate writes down of one act. Times are nanoseconds of the kernel's
// monotonic clock, which all processes share and nobody sets.
type line struct {
	Kind kind   `json:"k"`
	By   string `json:"p"` // the process: the candidate's name, and which of its lives
	N    uint64 `json:"n"` // the leadership's number
	B    int64  `json:"b"` // before and
	A    int64  `json:"a"` // after the view was asked: it was in the future
	R    int64  `json:"r,omitempty"`
	Key  string `json:"key,omitempty"`
	V    string `json:"v,omitempty"`
	G    string `json:"g,omitempty"` // in a leadership's first: how often a newer version has written the record
	O    string `json:"o,omitempty"` // what became of a write: ok, refused, unknown
}

type kind string

const (
	read  kind = "read"  // answered a client's read from memory
	write kind = "write" // wrote a register, with the token
	act   kind = "act"   // nothing but that the view was asked
)

func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return t.Nano()
}

// ledger is a file that lines are added to, each with one write: what was written before
// a process was killed is there.
type ledger struct{ f *os.File }

func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return &ledger{f}, err
}

func (l *ledger) add(e line) {
	text, err := json.Marshal(e)
	if err == nil {
		_, err = l.f.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: the ledger:", err)
		os.Exit(1)
	}
}

// readLedger returns the lines of a ledger. A process that is killed may leave the last of its lines
// incomplete, and the next one goes on behind it.
func readLedger(path string) (all []line, err error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for in := bufio.NewReader(f); ; {
		text, err := in.ReadBytes('\n')
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var e line
		if whole := bytes.LastIndex(text, []byte(`{"k":`)); whole < 0 || json.Unmarshal(text[whole:], &e) != nil {
			return nil, fmt.Errorf("%s: a line that no candidate writes: %q", path, text)
		}
		all = append(all, e)
	}
}
