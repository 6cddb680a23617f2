package pages

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// code is what the repository's Go declares and says.
type code struct {
	names    map[string]bool // exported: types, functions, methods, fields, constants
	says     map[string]bool // string literals
	warnings map[string]bool // what the root package logs as a warning or an error
}

// readCode parses what is not a test, and no program.
func readCode(t *testing.T) *code {
	t.Helper()
	c := &code{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || name == "testdata" || name == "examples" || name == "bench" || name == "servers" || len(name) > 2 && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		c.take(file, filepath.Dir(path) == root)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *code) take(file *ast.File, core bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			c.names[n.Name.Name] = true
		case *ast.TypeSpec:
			c.names[n.Name.Name] = true
		case *ast.ValueSpec:
			for _, name := range n.Names {
				c.names[name.Name] = true
			}
		case *ast.Field:
			for _, name := range n.Names {
				c.names[name.Name] = true
			}
		case *ast.CallExpr:
			if f, is := n.Fun.(*ast.SelectorExpr); is && core && f.Sel.Name == "log" && len(n.Args) > 1 {
				level, is := n.Args[0].(*ast.SelectorExpr)
				if said := literal(n.Args[1]); is && said != "" && (level.Sel.Name == "LevelWarn" || level.Sel.Name == "LevelError") {
					c.warnings[said] = true
				}
			}
		case *ast.BinaryExpr, *ast.BasicLit:
			if said := literal(n.(ast.Expr)); said != "" {
				c.says[said] = true
				return false
			}
		}
		return true
	})
}

// literal is a string, also one that is added up of several.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return s
		}
	case *ast.BinaryExpr:
		if a, b := literal(e.X), literal(e.Y); a != "" && b != "" && e.Op == token.ADD {
			return a + b
		}
	}
	return ""
}

// said reports whether a log line or an error begins so: it is the whole of it, or all before
// a colon.
func (c *code) said(line string) bool {
	short, _ := strings.CutPrefix(line, "leaderelection: ")
	for s := range c.says {
		s, _ = strings.CutPrefix(s, "leaderelection: ")
		if s == short || strings.HasPrefix(s, short+":") {
			return true
		}
	}
	return false
}

var (
	span   = regexp.MustCompile("`([^`\n]+)`")
	fenced = regexp.MustCompile("(?ms)^```.*?^```$")
	goName = regexp.MustCompile(`^(?:\w+\.)*([A-Z]\w*)(?:\(\))?$`)
	alert  = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	hasLow = regexp.MustCompile(`[a-z]`)
	metric = regexp.MustCompile(`\bleaderelection_\w+`)
	listed = regexp.MustCompile(`(?m)^\t(leaderelection_\w+) +(?:gauge|counter|histogram)`)
)

// foreign are words that others have made, which look like names of ours.
var foreign = map[string]bool{
	"KillMode": true, "TimeoutStopSec": true, "Persistent": true, "Unavailable": true, "FailedPrecondition": true, "WaitForReady": true, "NewClient": true,
	"ReleaseOnCancel": true, "Rev": true, "LockIndex": true,
}

// Names of Go, alerts, log lines and metrics that a page tells of are the code's.
func TestNames(t *testing.T) {
	c := readCode(t)
	metrics := map[string]bool{}
	for _, m := range listed.FindAllStringSubmatch(read(t, "leprom/leprom.go"), -1) {
		metrics[m[1]] = true
	}
	for _, m := range alert.FindAllStringSubmatch(read(t, "leotel/alerts.yaml"), -1) {
		c.names[m[1]] = true
	}
	names, lines, measured := 0, 0, 0
	for page, text := range pages(t) {
		for _, m := range span.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			word := m[1]
			if n := goName.FindStringSubmatch(word); n != nil && hasLow.MatchString(n[1]) {
				names++
				if !c.names[n[1]] && !foreign[n[1]] && !(page == "rules.md" && strings.HasPrefix(word, "Test")) { // TestRulesAreTested looks at those
					t.Errorf("docs/%s: nothing is called %s", page, word)
				}
			}
			if strings.HasPrefix(word, "leaderelection: ") {
				lines++
				if !c.said(word) {
					t.Errorf("docs/%s: nothing says %q", page, word)
				}
			}
		}
		for _, m := range metric.FindAllString(text, -1) {
			measured++
			if !metrics[m] && m != "leaderelection_election" && m != "leaderelection_" {
				t.Errorf("docs/%s: nothing measures %s", page, m)
			}
		}
	}
	if len(metrics) < 15 || names < 20 || lines < 5 || measured < 3 {
		t.Errorf("%d metrics, %d names, %d lines, %d times measured: are they still found?", len(metrics), names, lines, measured)
	}
}

// What the table of docs/operations.md says that is logged and measured is, and there is no
// warning of the core that it leaves out.
func TestOperations(t *testing.T) {
	c := readCode(t)
	text := pages(t)["operations.md"]
	metrics := read(t, "leprom/leprom.go")
	rows := 0
	for row := range strings.Lines(text) {
		cells := strings.Split(row, " | ")
		if len(cells) != 4 || strings.HasPrefix(row, "| what") {
			continue
		}
		rows++
		for _, m := range span.FindAllStringSubmatch(cells[1], -1) {
			if !c.said(m[1]) && !c.names[m[1]] {
				t.Errorf("nothing says %q:\n%s", m[1], row)
			}
		}
		for _, m := range span.FindAllStringSubmatch(cells[2], -1) {
			if !regexp.MustCompile(`(?m)^\tleaderelection_`+regexp.QuoteMeta(m[1])+` `).MatchString(metrics) && !c.says[m[1]] {
				t.Errorf("%q is measured nowhere:\n%s", m[1], row)
			}
		}
	}
	if rows < 9 || len(c.warnings) < 8 {
		t.Errorf("%d rows, %d warnings: are they still found?", rows, len(c.warnings))
	}
	for line := range c.warnings {
		line, _, _ = strings.Cut(line, ":")
		if !strings.Contains(text, "`"+line+"`") && !strings.Contains(text, "`"+line+":") {
			t.Errorf("docs/operations.md does not have the warning %q", line)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// The holds that docs/cron.md proposes are longer than the waits, and are over before the job is
// due again, by all clocks.
func TestCronPeriods(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| `(\\w+)` \\| `(\\w+)` \\|$").FindAllStringSubmatch(pages(t)["cron.md"], -1)
	if len(rows) < 3 {
		t.Errorf("%d rows: are they still found?", len(rows))
	}
	for _, row := range rows {
		var d [3]time.Duration
		for i := range d {
			var err error
			if d[i], err = time.ParseDuration(row[i+1]); err != nil {
				t.Error(err)
			}
		}
		if period, wait, hold := d[0], d[1], d[2]; hold < wait || hold+wait+2*leaderelection.DefaultMaxClockSkew > period*6/10 {
			t.Errorf("%s: the hold is too short, or too long for a machine that fires late", row[0])
		}
	}
}
