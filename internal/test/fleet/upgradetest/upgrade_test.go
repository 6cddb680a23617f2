//go:build linux || darwin

package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/internal/test/fleet"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/upgradetest/newer"
)

// build makes both versions of the program, by their names.
func build(t *testing.T) map[string]string {
	dir := t.TempDir()
	list, err := newer.Overlay("../../../..", dir)
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{"older": filepath.Join(dir, "older"), "newer": filepath.Join(dir, "newer")}
	for version, args := range map[string][]string{"older": nil, "newer": {"-overlay", list}} {
		cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-buildvcs=false", "-o", programs[version]}, args...), ".")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building the %s version: %v\n%s", version, err, out)
		}
	}
	return programs
}

// Candidates of two versions share an election while the fleet is upgraded, and rolled
// back: each leads in its turn and is followed by the other, the number only grows, and
// what only the newer knows survives the older's writes.
func TestRollingUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it builds older programs")
	}
	programs := build(t)
	for _, order := range [][]string{
		{"older", "newer", "older", "newer"},
		{"newer", "older", "newer", "older"},
	} {
		t.Run(order[0]+" first", func(t *testing.T) {
			t.Parallel()
			e := begin(t, programs)
			leader := e.start(order[0], "0-"+order[0])
			first := led(t, leader)
			for i, version := range order[1:] {
				e.extended(leader)
				next := e.start(version, fmt.Sprintf("%d-%s", i+1, version))
				next.wait(fmt.Sprintf("sees %q", leader.Name))
				switch i {
				case 0: // shut down
					leader.leave()
					next.wait("leads ")
				case 1: // a crash: the record is still held, and stays as it is
					leader.Kill()
					next.wait("leads ")
				default: // asked to hand over, by a program of the older version: this one
					if err := leaderelection.Transfer(e.ctx, e.decider, next.Name); err != nil {
						t.Fatal(err)
					}
					next.wait("leads ")
					leader.leave()
				}
				leader = next
			}
			e.extended(leader)
			leader.leave()
			if last := e.until("is vacant", (*leaderelection.RaceEntry).Vacant); last.ElectionNumber < first+leaderelection.ElectionNumber(len(order)-1) {
				t.Errorf("%d have led since %d, and the record is %+v", len(order), first, last)
			}
		})
	}
	t.Run("a field that must be understood", func(t *testing.T) {
		t.Parallel()
		mustUnderstand(t, programs)
	})
}

// mustUnderstand has the newer version mark its field: then the older neither leads nor
// writes, whether it comes new or has been there, and says why.
func mustUnderstand(t *testing.T, programs map[string]string) {
	const why = `field "generation" must be understood, and is unknown; a newer version of the library has written it: upgrade this program`
	e := begin(t, programs)
	first := e.start("older", "first")
	number := led(t, first)
	standby := e.start("older", "standby")
	standby.wait(`sees "first"`)
	upgraded := e.start("newer", "upgraded", newer.Must+"=1")
	upgraded.wait(`sees "first"`)
	if err := leaderelection.Transfer(e.ctx, e.decider, "upgraded"); err != nil {
		t.Fatal(err)
	}
	upgraded.wait("leads ")
	standby.wait("level=WARN", why)
	fresh := e.start("older", "fresh")
	fresh.wait("ended: ", why, leaderelection.ErrPermanent.Error())
	first.leave()
	upgraded.leave()
	back := e.start("newer", "back")
	if now := led(t, back); now != number+2 { // after first and upgraded: nobody in between
		t.Errorf("the newer version leads %d, the first led %d", now, number)
	}
	if _, err := e.decider.ReadCurrent(e.ctx); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("the test itself is of the older version, and reads the record: %v", err)
	}
}

// led waits until c leads, and returns its number.
func led(t *testing.T, c *candidate) (number leaderelection.ElectionNumber) {
	t.Helper()
	line := c.wait("leads ")
	if _, err := fmt.Sscanf(line, "leads %d", &number); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return number
}

// election is one with a file, which the test watches: as an observer of the older version.
type election struct {
	t        *testing.T
	ctx      context.Context
	programs map[string]string
	path     string
	decider  *file.Decider
	next     func() (*leaderelection.RaceEntry, error, bool)
	last     *leaderelection.RaceEntry
}

func begin(t *testing.T, programs map[string]string) *election {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("a minute is over"))
	t.Cleanup(cancel)
	e := &election{t: t, ctx: ctx, programs: programs, path: filepath.Join(t.TempDir(), "election.json"), last: &leaderelection.RaceEntry{}}
	e.decider = file.NewDecider(e.path, nil)
	next, stop := iter.Pull2(e.decider.Changes(ctx))
	t.Cleanup(stop)
	e.next = next
	return e
}

// until returns the first record for which is is true. No record on the way goes back.
func (e *election) until(what string, is func(*leaderelection.RaceEntry) bool) *leaderelection.RaceEntry {
	e.t.Helper()
	for {
		entry, err, _ := e.next()
		if err != nil || entry == nil {
			e.t.Fatalf("waiting for a record that %s: %v, %v; the last was %+v", what, err, context.Cause(e.ctx), e.last)
		}
		if entry.Compare(e.last) < 0 {
			e.t.Fatalf("the record went back from %+v to %+v", e.last, entry)
		}
		if generation(e.t, entry) < generation(e.t, e.last) {
			e.t.Fatalf("what the newer version had written is lost: %+v, and then %+v", e.last, entry)
		}
		e.last = entry
		if is(entry) {
			return entry
		}
	}
}

// extended waits until c has extended its term, and checks what has become of the newer
// version's field.
func (e *election) extended(c *candidate) {
	e.t.Helper()
	before := generation(e.t, e.last)
	entry := e.until("is extended by "+c.Name, func(entry *leaderelection.RaceEntry) bool { return entry.LeaderID == c.Name && entry.Extension > 0 })
	now := generation(e.t, entry)
	if c.version == "newer" && now <= before {
		e.t.Errorf("the newer version has written, and its field went from %d to %d", before, now)
	}
}

func generation(t *testing.T, e *leaderelection.RaceEntry) uint64 {
	t.Helper()
	if e.Extra[newer.Field] == "" {
		return 0
	}
	n, err := strconv.ParseUint(e.Extra[newer.Field], 10, 64)
	if err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	return n
}

// candidate is a process.
type candidate struct {
	*fleet.Process
	t       *testing.T
	version string
	said    *fleet.Journal[string]
	heard   int // lines of it
}

func (e *election) start(version, id string, env ...string) *candidate {
	e.t.Helper()
	cmd := exec.CommandContext(e.ctx, e.programs[version], e.path, id)
	cmd.Env = append(os.Environ(), env...)
	c := &candidate{t: e.t, version: version, said: fleet.NewJournal(func(text string, ended bool) string {
		if ended {
			return gone
		}
		return strings.ReplaceAll(text, `\"`, `"`) // in a log line quotes are escaped
	})}
	var err error
	if c.Process, err = c.said.Start(e.t, id, cmd); err != nil {
		e.t.Fatal(err)
	}
	return c
}

const gone = "(its process has ended)"

// wait returns the next line that has all of these parts.
func (c *candidate) wait(parts ...string) (line string) {
	c.t.Helper()
	var all []string
	has := func(s string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(s, part) })
	}
	c.said.Await(time.Minute, func(lines map[string][]string) bool {
		all = slices.Clone(lines[c.Name])
		for ; c.heard < len(all); c.heard++ {
			if line = all[c.heard]; has(line) || line == gone {
				return true
			}
		}
		return false
	})
	if !has(line) {
		c.t.Fatalf("%s does not say %q; it said:\n%s\n%s", c.Name, parts, strings.Join(all, "\n"), c.Stderr())
	}
	c.heard++
	return line
}

// leave has the candidate release, if it leads, and end.
func (c *candidate) leave() {
	c.t.Helper()
	c.Leave()
	c.wait("ended: ", errStdin.Error())
}
