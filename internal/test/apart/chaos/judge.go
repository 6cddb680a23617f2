//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// leadership is what one process did under one number.
type leadership struct {
	by          string
	n           uint64
	first, last line
	told        bool   // it has said
	generation  uint64 // what a newer version had written before
}

// leaderships are all, in the order in which they began to act.
func leaderships(all []line) []*leadership {
	type id struct {
		by string
		n  uint64
	}
	found := map[id]*leadership{}
	var sorted []*leadership
	for _, l := range all {
		r := found[id{l.By, l.N}]
		if r == nil {
			r = &leadership{by: l.By, n: l.N, first: l, last: l}
			found[id{l.By, l.N}] = r
			sorted = append(sorted, r)
		}
		if l.G != "" {
			r.generation, _ = strconv.ParseUint(l.G, 10, 64)
			r.told = true
		}
		if l.A < r.first.A {
			r.first = l
		}
		if l.B > r.last.B {
			r.last = l
		}
	}
	slices.SortFunc(sorted, func(a, b *leadership) int { return cmp.Compare(a.first.B, b.first.B) })
	return sorted
}

// overlaps are where two views were true at once, or a token did not grow.
func overlaps(all []*leadership) (found []string) {
	for i, later := range all {
		for _, before := range all[:i] {
			if over := before.last.B - later.first.A; over > 0 {
				found = append(found, fmt.Sprintf("%s acts with token %d for %v while %s acts with token %d", before.by, before.n, span(over), later.by, later.n))
			}
			if later.n <= before.n {
				found = append(found, fmt.Sprintf("%s has token %d after %s had token %d", later.by, later.n, before.by, before.n))
			}
		}
	}
	return found
}

// forgotten are leaderships that began with a record that says less of what a newer version
// of the library had written than one before: an older version has not handed it on.
func forgotten(all []*leadership) (found []string) {
	var top uint64
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *leadership) int { return cmp.Compare(a.n, b.n) })
	for _, r := range all {
		if r.generation < top {
			if r.told {
				found = append(found, fmt.Sprintf("%s has token %d, and a newer version's field is %d in its record, after %d", r.by, r.n, r.generation, top))
			}
			continue
		}
		top = r.generation
	}
	return found
}

// kinds are how many leaderships each kind of candidate had.
func kinds(all []*leadership) (older, newer, command int) {
	for _, r := range all {
		switch {
		case strings.HasSuffix(r.by, byNewer):
			newer++
		case strings.HasSuffix(r.by, byCommand):
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
