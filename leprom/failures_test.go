package leprom_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

// failures is what may happen to a fleet, by its name in docs/operations.md; each returns how it
// ends. After another minute everything is to be well again.
var failures = map[string]func(f *fleet) (end func()){
	"The store is down": func(f *fleet) func() {
		f.a.store.Inject(memory.LoseRequests())
		f.b.store.Inject(memory.LoseRequests())
		return f.healed
	},
	"The leader is cut off from the store": func(f *fleet) func() {
		f.a.store.Inject(memory.LoseRequests())
		return f.healed
	},
	"The leader is frozen": func(f *fleet) func() { return f.a.clock.Freeze(false) },
	"The leader's work hangs": func(f *fleet) func() {
		hanging := make(chan struct{})
		f.a.hanging.Store(&hanging)
		sick := errors.New("the disk is full")
		f.a.sick.Store(&sick)
		return func() { close(hanging); f.a.sick.Store(nil) }
	},
	"A clock is off": func(f *fleet) func() {
		f.a.clock.Step(5 * time.Second)
		return func() { f.a.clock.Restore(); f.b.leave() } // so that a leads again, and its writes are stamped
	},
	"The record is damaged": func(f *fleet) func() {
		_, err := record.Unmarshal("orders", []byte(`{"leaderelection":1,"leader_id"`))
		return f.unreadable(err)
	},
	"The record is a newer version's": func(f *fleet) func() {
		text, err := record.Marshal(f.a.store.Entry())
		if err == nil {
			_, err = record.Unmarshal("orders", []byte(strings.Replace(string(text), "{", `{"must_understand":["quorum"],"quorum":3,`, 1)))
		}
		return f.unreadable(err)
	},
	"The application is not healthy": func(f *fleet) func() {
		sick := errors.New("the disk is full")
		f.a.sick.Store(&sick)
		return func() { f.a.sick.Store(nil) }
	},
	"Two candidates have one LeaderID": func(f *fleet) func() { f.join("a"); return f.healed },
	"Something spoils conditions": func(f *fleet) func() {
		refuse := memory.Fail(&le.LostRaceError{Place: "orders"}).On(memory.Write)
		f.a.store.Inject(refuse)
		f.b.store.Inject(refuse)
		return f.healed
	},
	"The record is emptied":                         func(f *fleet) func() { f.a.store.Replace(&le.RaceEntry{Emptied: true}); return f.healed },
	"The record is deleted":                         func(f *fleet) func() { f.a.store.Replace(nil); return f.healed },
	"The store is set back":                         func(f *fleet) func() { f.a.store.Replace(f.before); return f.healed },
	"The record is deleted, and a candidate starts": func(f *fleet) func() { f.a.store.Replace(nil); f.join("c"); return f.healed },
	"The store is set back, and a candidate starts": func(f *fleet) func() { f.a.store.Replace(f.before); f.join("c"); return f.healed },
}

// healed has the store answer everybody.
func (f *fleet) healed() { f.a.store.Inject(nil); f.b.store.Inject(nil) }

// unreadable has the record be one that nobody can read, so that whoever writes loses the race.
func (f *fleet) unreadable(err error) (end func()) {
	fault := func(op memory.Op) memory.Fault {
		if op.Kind == memory.Write {
			return memory.Fault{Err: &le.LostRaceError{Place: "orders"}}
		}
		return memory.Fault{Err: err}
	}
	f.a.store.Inject(fault)
	f.b.store.Inject(fault)
	return f.healed
}

// docsRow is a row of the table of failures: what is said, and what is measured.
var docsRow = regexp.MustCompile(`(?m)^\| \*\*([^|]+)\*\*[^|]*\| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$`)

var quoted = regexp.MustCompile("`([^`]+)`")

// What docs/operations.md tells an operator to look for in a failure is seen in it, and is not
// seen if all is well. No other warning is said.
func TestFailures(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	well := observe(t, func(f *fleet) func() { return f.healed })
	if len(well.lines) > 0 {
		t.Errorf("though nothing has happened it says %q", well.lines)
	}
	told := map[string]bool{}
	above := ""
	for _, row := range docsRow.FindAllStringSubmatch(string(text), -1) {
		name, comesOf, said, measured := row[1], row[2], row[3], row[4]
		told[name] = true
		said = strings.Replace(said, "as above", above, 1)
		above = said
		t.Run(name, func(t *testing.T) {
			failure := failures[name]
			if failure == nil {
				t.Fatal("nobody knows how this happens")
			}
			f := observe(t, failure)
			f.checkSaid(t, said)
			f.checkMeasured(t, measured, well)
			if two := strings.Contains(comesOf, "**two leaders**"); (f.leaders > 1) != two {
				t.Errorf("%d lead at once, and the row has two leaders: %v", f.leaders, two)
			}
		})
	}
	for name := range failures {
		if !told[name] {
			t.Errorf("docs/operations.md does not tell of %q", name)
		}
	}
}

// checkSaid compares the cell of a row with what was logged.
func (f *fleet) checkSaid(t *testing.T, cell string) {
	t.Helper()
	said := func(what string) bool {
		return slices.ContainsFunc(f.lines, func(l string) bool { return strings.Contains(l, what) })
	}
	var words, maybe []string
	always, atTimes, _ := strings.Cut(cell, "; at times")
	for _, m := range quoted.FindAllStringSubmatch(always, -1) {
		words = append(words, m[1])
	}
	for _, m := range quoted.FindAllStringSubmatch(atTimes, -1) {
		maybe = append(maybe, m[1])
	}
	// Of two causes between which chance decides one is said.
	either := regexp.MustCompile("`([^`]+)` or `([^`]+)`").FindStringSubmatch(cell)
	for _, w := range words {
		if !said(w) && (either == nil || !slices.Contains(either, w) || !said(either[1]) && !said(either[2])) {
			t.Errorf("%q is not said:\n%s", w, strings.Join(f.lines, "\n"))
		}
	}
	if (len(words) == 0) != (cell == "nothing") {
		t.Errorf("the cell names no line: %s", cell)
	}
	for _, line := range f.lines {
		level, message, _ := strings.Cut(line, " leaderelection: ")
		message, _, _ = strings.Cut(message, " | ")
		whole := func(w string) bool { return message == w || strings.HasPrefix(message, w+":") }
		if level != "INFO" && !slices.ContainsFunc(words, whole) && !slices.ContainsFunc(maybe, whole) {
			t.Errorf("the row does not tell of the warning %q", line)
		}
	}
}

var isMetric = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)

// checkMeasured compares the cell of a row with what was measured: each metric that it names has
// a value that it does not have if all is well, by the label that is named after it.
func (f *fleet) checkMeasured(t *testing.T, cell string, well *fleet) {
	t.Helper()
	metric, seen := "", false
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		word := m[1]
		label := ""
		if isMetric.MatchString(word) && !slices.Contains([]string{"lost_race", "clock_skew"}, word) {
			metric = word
		} else {
			label = word
		}
		moved := false
		for series, v := range f.measured {
			_, name, _ := strings.Cut(series, " ")
			name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			if was, is := well.measured[series]; name == metric && (label == "" || slices.Contains(strings.Split(labels, ","), label)) &&
				(!is || v.low < was.low || v.high > was.high) {
				moved = true
			}
		}
		// Of two labels between which chance decides one moves.
		if either := strings.Contains(cell, "` or `"+word+"`") || strings.Contains(cell, "`"+word+"` or `"); !moved && !either {
			t.Errorf("%s %s is as if all were well", metric, label)
		}
		seen = seen || moved
	}
	if !seen {
		t.Errorf("the cell names nothing that moves: %s", cell)
	}
}
