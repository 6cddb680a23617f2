//go:build go1.25

package leaderelection

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// odd tokens: of a type that cannot be compared, and of one that may hold such a value.
type (
	bytesToken []byte
	anyToken   struct {
		revision int
		any
	}
)

func (bytesToken) CommitTS() time.Time { return time.Time{} }
func (anyToken) CommitTS() time.Time   { return time.Time{} }

// Tokens of every type can be compared, with one another and with none.
func TestSameVersion(t *testing.T) {
	for name, c := range map[string]struct {
		a, b LeaderToken
		want bool
	}{
		"none":             {nil, nil, true},
		"none and one":     {nil, version{of: "1"}, false},
		"one and none":     {bytesToken("1"), nil, false},
		"equal":            {version{of: "1"}, version{of: "1"}, true},
		"other":            {version{of: "1"}, version{of: "2"}, false},
		"two types":        {version{of: "1"}, bytesToken("1"), false},
		"slices":           {bytesToken("1"), bytesToken("1"), true},
		"other slices":     {bytesToken("1"), bytesToken("2"), false},
		"slices inside":    {anyToken{1, []int{1}}, anyToken{1, []int{1}}, true},
		"other inside":     {anyToken{1, []int{1}}, anyToken{1, []int{2}}, false},
		"two types inside": {anyToken{1, []int{1}}, anyToken{1, 1}, false},
		"a number inside":  {anyToken{1, 2}, anyToken{1, 2}, true},
		"another revision": {anyToken{1, []int{1}}, anyToken{2, []int{1}}, false},
	} {
		if got := sameVersion(c.a, c.b); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
	var a, b LeaderToken = version{of: "1"}, version{of: "1"}
	if n := testing.AllocsPerRun(100, func() { sameVersion(a, b) }); n != 0 {
		t.Errorf("to compare two tokens allocates %v times", n)
	}
}

// during is a clock that does something while it is read.
type during struct {
	clocks.SystemClock
	do func()
}

func (d *during) Now() time.Time {
	now := time.Now()
	if do := d.do; do != nil {
		d.do = nil
		do()
	}
	return now
}

// liveView returns a campaign's view that ends in an hour, and the state with which an
// extension would move it on by another.
func liveView(clock clocks.Clock) (*TimeView, viewEnd) {
	k := newTimekeeper(clock)
	now := k.now()
	v := newView(k, 1)
	v.begin(viewEnd{wall: now.wall.Add(time.Hour), mono: now.mono + time.Hour})
	return v, viewEnd{wall: now.wall.Add(2 * time.Hour), mono: now.mono + 2*time.Hour}
}

// A view that is over, or is latched while an extension is being confirmed, does not
// come back to life.
func TestLatchAgainstMove(t *testing.T) {
	clock := &during{}
	v, next := liveView(clock)
	clock.do = v.end // between the look at the clock and the move
	if v.move(next) || v.ValueInFuture() || !v.latched() {
		t.Error("moved on though it was latched meanwhile")
	}
	// Its end has come, but nobody has looked yet.
	k := newTimekeeper(clock)
	now := k.now()
	v, next = liveView(clock)
	v.state.Store(&viewState{viewEnd: viewEnd{wall: now.wall.Add(-time.Second), mono: now.mono - time.Second}})
	if v.move(next) || v.ValueInFuture() {
		t.Error("moved on after its end")
	}
}

// However end and move meet, the view is over afterwards.
func TestLatchAgainstEnd(t *testing.T) {
	for range map[bool]int{true: 20_000, false: 100_000}[testing.Short()] {
		v, next := liveView(clocks.System())
		mover, moving := new(sync.WaitGroup), make(chan struct{})
		mover.Go(func() {
			close(moving)
			for ; v.move(next) && next.mono%64 != 0; next.mono++ {
			}
		})
		<-moving
		v.end()
		if mover.Wait(); v.ValueInFuture() {
			t.Fatal("alive after its end")
		}
	}
}

// leading returns a campaign without a loop that leads for a day.
func leading(cancel context.CancelCauseFunc) *Campaign {
	c := &Campaign{cfg: Config{Clock: clocks.System(), DrainTimeout: tT}, start: context.Background(), slice: maxSlice}
	c.timekeeper = newTimekeeper(c.cfg.Clock)
	view, now := newView(c.timekeeper, 1), c.now()
	view.begin(viewEnd{wall: now.wall.Add(24 * time.Hour), mono: now.mono + 24*time.Hour})
	c.view.Store(view)
	c.leadership = &leadership{c: c, number: 1, view: view, cancel: cancel, begun: make(chan struct{})}
	return c
}

// A leader that has lost its record has no view any more when its ctx ends.
func TestViewEndsBeforeCtx(t *testing.T) {
	told := false
	var c *Campaign
	c = leading(func(cause error) {
		if told = true; c.View().ValueInFuture() {
			t.Errorf("the ctx has ended by %q, and the view lives", cause)
		}
	})
	c.endLeadership(c.now(), ErrOusted)
	if !told {
		t.Error("the ctx goes on")
	}
}

// Rule 13: a process that is stopped between its look at the clock and its sleep does not sleep for longer than it was
// to from that look on.
func TestRule13LateTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leading(nil)
		defer c.mailbox.Close()
		begin := c.now()
		time.Sleep(900 * time.Millisecond)
		c.sleep(begin, time.Second)
		if slept := c.now().mono - begin.mono; slept != time.Second {
			t.Errorf("it has slept until %v after its look at the clock, want a second", slept)
		}
	})
}

// Rule 13: a leader notices within a second that its view was seen over, and within a minute if the system tells of
// jumps of its clock.
func TestRule13SleepsBySlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for slice, most := range map[time.Duration]time.Duration{maxSlice: time.Second, maxTellingSlice: time.Minute} {
			c := leading(nil)
			c.slice = slice
			begin := c.now()
			c.View().end()
			c.sleep(begin, 12*time.Hour)
			c.mailbox.Close()
			if slept := c.now().mono - begin.mono; slept > most {
				t.Errorf("it has slept for %v, want at most %v", slept, most)
			}
		}
	})
}

// A Leadership that Lead did not return has nothing to release.
func TestZeroLeadership(t *testing.T) {
	var l Leadership
	l.Release()
	l.Release()
}

// The files that decide, and what they may use. They can be read, and tested by tables, without the driver: they call,
// wait and log nothing.
var (
	pureFiles   = []string{"claims.go", "lease.go", "view.go", "witness.go"}
	pureImports = []string{"time", "slices", "maps", "math", "bytes", "errors"}
	pureTime    = []string{"Duration", "Time", "Second", "Millisecond", "Hour"} // no time.Now, and no timers
	driverNames = []string{"Campaign", "storeCalls", "feedState", "Config", "TimeView", "leadership", "observer", "timekeeper", "call", "answer", "urgency", "health", "proofs", "clockCheck", "diagnosis", "single"}
)

// impurities returns what a file has that does not belong into a pure one.
func impurities(name string, src any) (all []string) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	bad := func(at ast.Node, what string) {
		all = append(all, fmt.Sprintf("%v: %s", files.Position(at.Pos()), what))
	}
	for _, i := range f.Imports {
		if path, _ := strconv.Unquote(i.Path.Value); !slices.Contains(pureImports, path) {
			bad(i, "imports "+path)
		}
	}
	var look func(n ast.Node) bool
	look = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			bad(n, "starts a goroutine")
		case *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
			bad(n, "has a channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				bad(n, "has a channel")
			}
		case *ast.SelectorExpr:
			of, _ := n.X.(*ast.Ident)
			if of != nil && of.Name == "time" && !slices.Contains(pureTime, n.Sel.Name) {
				bad(n, "uses time."+n.Sel.Name)
			}
			ast.Inspect(n.X, look) // fields and methods may be called as they like
			return false
		case *ast.Ident:
			if slices.Contains(driverNames, n.Name) {
				bad(n, "names "+n.Name)
			}
		}
		return true
	}
	ast.Inspect(f, look)
	return all
}

// The decision is pure.
func TestDecisionIsPure(t *testing.T) {
	for _, name := range pureFiles {
		for _, what := range impurities(name, nil) {
			t.Error(what)
		}
	}
	all, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	for _, name := range all {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if n, ok := n.(*ast.TypeSpec); ok {
				declared[n.Name.Name] = true
			}
			return true
		})
	}
	for _, name := range driverNames {
		if !declared[name] {
			t.Errorf("the driver has no type %s any more: which may the pure files not name?", name)
		}
	}
}

// And if it were not, that would be seen.
func TestImpuritiesAreSeen(t *testing.T) {
	for what, src := range map[string]string{
		"a file that cannot be read": `func`,
		"an import":                  `import "context"`,
		"a renamed one":              `import maps "log/slog"`,
		"a dot import":               `import . "sync"`,
		"a goroutine":                `func f() { go f() }`,
		"a channel":                  `var c chan int`,
		"a channel's type":           `type c <-chan int`,
		"a channel in a field":       `type s struct{ c func() chan<- int }`,
		"a send":                     `func f() { c <- 1 }`,
		"a receive":                  `func f() { <-c }`,
		"a select":                   `func f() { select {} }`,
		"the clock":                  `import "time"; var _ = time.Now()`,
		"the clock as a value":       `import "time"; var now = time.Now`,
		"a timer":                    `import "time"; var t *time.Timer`,
		"a sleep":                    `import "time"; func f() { time.Sleep(1) }`,
		"the campaign":               `var c *Campaign`,
		"its Config":                 `func f(c Config) {}`,
		"a view":                     `type lease struct{ v *TimeView }`,
		"a campaign in a method":     `func (c *Campaign) f() {}`,
		"a conversion":               `var _ = leadership{}.f`,
		"a generic":                  `var _ list[Campaign]`,
	} {
		t.Run(what, func(t *testing.T) {
			if len(impurities("bad.go", "package p\n"+src)) == 0 {
				t.Errorf("nothing is wrong with %s", src)
			}
		})
	}
	if bad := impurities("good.go", "package p\nimport \"time\"\nfunc (l *lease) f(d time.Duration) time.Time { return l.call.answer }"); len(bad) > 0 {
		t.Error(bad)
	}
}
