package leaderelection

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

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
