//go:build linux

package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"
)

// acts are lines of one leadership, one a millisecond.
func acts(by string, n uint64, from, to int64) (all []line) {
	for t := from; t < to; t++ {
		all = append(all, line{Kind: act, By: by, N: n, B: t * 1e6, A: t*1e6 + 1000})
	}
	return all
}

// Lines are acts: what is found in those is fleet's to test.
func TestOverlapsAreFound(t *testing.T) {
	all := slices.Concat(acts("a", 1, 0, 10), acts("b-newer", 2, 10, 20), acts("c-command", 3, 20, 30))
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	is, found := leaderships(all)
	if older, newer, command := kinds(is); found != nil || older != 1 || newer != 1 || command != 1 {
		t.Errorf("in order, and yet %v; %d, %d, %d leaderships", found, older, newer, command)
	}
	for _, bad := range [][]line{acts("a", 1, 12, 13), acts("a", 2, 0, 5)} {
		if _, found := leaderships(append(bad, all...)); found == nil {
			t.Errorf("not found: %v", bad)
		}
	}
}

// What a newer version wrote is handed on by all: it never becomes less.
func TestForgottenFieldsAreFound(t *testing.T) {
	begin := func(n uint64, generation string) line {
		return line{Kind: act, By: "a", N: n, B: int64(n), A: int64(n), G: generation}
	}
	for name, c := range map[string]struct {
		lines []line
		found int
	}{
		"all is handed on":         {[]line{begin(1, "0"), begin(2, "0"), begin(3, "7"), begin(4, "7"), begin(5, "9")}, 0},
		"a command does not tell":  {[]line{begin(1, "7"), begin(2, ""), begin(3, "7")}, 0},
		"a field is lost":          {[]line{begin(1, "7"), begin(2, "0"), begin(3, "0")}, 2},
		"the field has gone back":  {[]line{begin(1, "7"), begin(2, ""), begin(3, "6"), begin(4, "8")}, 1},
		"they come in any order":   {[]line{begin(3, "7"), begin(1, "0"), begin(2, "3")}, 0},
		"only the first line says": {[]line{begin(1, "7"), {Kind: act, By: "a", N: 1, B: 5, A: 5}, begin(2, "8")}, 0},
	} {
		if found := forgotten(c.lines); len(found) != c.found {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestRegisters(t *testing.T) {
	w := func(v string, b, r int64, o string) line {
		return line{Kind: write, By: "a", N: 1, Key: "a", V: v, B: b, A: b, R: r, O: o}
	}
	rd := func(v string, b, r int64) line {
		return line{Kind: read, By: "a", N: 1, Key: "a", V: v, B: b, A: b, R: r}
	}
	for name, c := range map[string]struct {
		lines []line
		held  content
		ok    bool
	}{
		"in order":                   {lines: []line{rd("", 0, 1), w("x", 2, 3, "ok"), rd("x", 4, 5)}, ok: true},
		"an old value":               {lines: []line{w("x", 2, 3, "ok"), w("y", 4, 5, "ok"), rd("x", 6, 7)}},
		"a value from the future":    {lines: []line{rd("x", 0, 1), w("x", 2, 3, "ok")}},
		"unknown, and applied":       {lines: []line{w("x", 2, 3, "unknown"), rd("x", 9, 10)}, held: content{Applied: map[string]int64{"x": 5}}, ok: true},
		"unknown, and not applied":   {lines: []line{w("x", 2, 3, "unknown"), rd("", 9, 10)}, ok: true},
		"refused, and yet read":      {lines: []line{w("x", 2, 3, "refused"), rd("x", 9, 10)}},
		"applied by one who is gone": {lines: []line{rd("x", 9, 10)}, held: content{Applied: map[string]int64{"x": 5}}, ok: true},
		"lost by one who is gone":    {lines: []line{rd("", 9, 10), rd("x", 11, 12)}, held: content{Applied: map[string]int64{"x": 5}}},
	} {
		if _, wrong := linearizable(c.lines, c.held); (wrong == nil) != c.ok {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

func TestBack(t *testing.T) {
	all := append(acts("a", 1, 0, 10), acts("b", 2, 50, 60)...)
	took, never := back(all, []calm{{5e6, 9e6}, {20e6, 55e6}, {70e6, 80e6}})
	if len(took) != 2 || took[1] != 30*time.Millisecond || never != 1 {
		t.Errorf("%v, never %d", took, never)
	}
	if g := gap(all, []calm{{0, 60e6}}); g < 40*time.Millisecond-time.Microsecond || g > 41*time.Millisecond {
		t.Errorf("a gap of %v", g)
	}
}

// Only the faults that are asked for are made, and none of commands where there are none.
func TestFaultsByName(t *testing.T) {
	w := &world{store: &cluster{}}
	if got := len(w.candidateFaults()); got != len(candidateFaults) {
		t.Errorf("without commands %d faults of candidates, want %d", got, len(candidateFaults))
	}
	w.commands = 1
	if got := len(w.candidateFaults()); got != len(candidateFaults)+len(commandFaults) {
		t.Errorf("with commands %d faults of candidates", got)
	}
	w.only = regexp.MustCompile("version|disk")
	for _, f := range append(w.candidateFaults(), w.storeFaults()...) {
		if !w.only.MatchString(f.name) {
			t.Errorf("%s was not asked for", f.name)
		}
	}
	if c, s := len(w.candidateFaults()), len(w.storeFaults()); c != 2 || s != len(diskFaults) {
		t.Errorf("%d faults of candidates and %d of the store", c, s)
	}
	names := map[string]bool{}
	for _, f := range slices.Concat(candidateFaults, commandFaults, storeFaults, diskFaults) {
		if names[f.name] {
			t.Errorf("two faults are called %s, and are counted as one", f.name)
		}
		names[f.name] = true
	}
}

// Who is killed while it writes leaves half a line, and the next one goes on behind it.
func TestLedgerOfTheKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	const half = `{"k":"read","p":"c4.12-command`
	if err := os.WriteFile(path, []byte(`{"k":"act","p":"c4.11","n":1}`+"\n"+half+`{"k":"act","p":"c4.12","n":2}`+"\n"+half), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := readLedger(path); err != nil || len(all) != 2 || all[1].By != "c4.12" || all[1].N != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := os.WriteFile(path, []byte("{\"k\":\"act\",\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readLedger(path); err == nil {
		t.Error("half a line with an end was believed")
	}
}
