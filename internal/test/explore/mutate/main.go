// Command mutate makes every small mutant of some Go files of a package, one at a time, and runs the package's tests on each. It
// prints the mutants that survive: a test is missing, or the mutant behaves like the code. No file is changed. The order is random, so
// that a run which is cut short is a sample.
//
//	go run ./internal/test/explore/mutate -run 'TestLease|TestClaims|TestWitness' -run TestExplore claims.go lease.go view.go witness.go
//
// The tests of the first -run come first, and those of the next only if the mutant has survived them.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// mutant is a file with one mistake.
type mutant struct{ name, file, text string }

var swaps = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GTR}, token.LEQ: {token.LSS, token.GTR}, token.GTR: {token.GEQ, token.LSS}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL}, token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
}

// mutantsOf makes the mutants of a file: of each comparison, connective, sign, constant and condition, of each min and max, and of each
// assignment and call that may be left out.
func mutantsOf(file string) (all []mutant, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	src, set := string(b), token.NewFileSet()
	tree, err := parser.ParseFile(set, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	replace := func(from, to token.Pos, with string) {
		i, j := set.Position(from).Offset, set.Position(to).Offset
		line := set.Position(from).Line
		old := strings.Join(strings.Fields(src[i:j]), " ")
		all = append(all, mutant{fmt.Sprintf("%s:%d:%d: %.70s  =>  %.70s", file, line, set.Position(from).Column, old, with), file, src[:i] + with + src[j:]})
	}
	condition := func(e ast.Expr) {
		text := src[set.Position(e.Pos()).Offset:set.Position(e.End()).Offset]
		replace(e.Pos(), e.End(), "(true || "+text+")")
		replace(e.Pos(), e.End(), "(false && ("+text+"))")
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok == token.CONST
		case *ast.BinaryExpr:
			for _, t := range swaps[n.Op] {
				replace(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), t.String())
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT || n.Op == token.SUB {
				replace(n.OpPos, n.OpPos+1, "")
			}
		case *ast.BasicLit:
			if n.Kind == token.INT {
				replace(n.Pos(), n.End(), n.Value+"+1")
				if n.Value != "0" {
					replace(n.Pos(), n.End(), n.Value+"-1")
				}
			}
		case *ast.Ident:
			if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
				replace(n.Pos(), n.End(), other)
			}
		case *ast.IfStmt:
			condition(n.Cond)
		case *ast.CaseClause:
			for _, e := range n.List {
				switch e.(type) {
				case *ast.BinaryExpr, *ast.CallExpr, *ast.UnaryExpr:
					condition(e)
				}
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && len(n.Args) == 2 {
				if other := map[string]string{"min": "max", "max": "min"}[f.Name]; other != "" {
					replace(f.Pos(), f.End(), other)
				}
			}
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				replace(n.Pos(), n.End(), "_ = 0")
			}
		case *ast.ExprStmt:
			replace(n.Pos(), n.End(), "_ = 0")
		}
		return true
	})
	return all, nil
}

type runs []string

func (r *runs) String() string     { return strings.Join(*r, " ") }
func (r *runs) Set(s string) error { *r = append(*r, s); return nil }

func main() {
	var run runs
	flag.Var(&run, "run", "tests to run, as for go test; may be given again")
	timeout := flag.Duration("timeout", time.Minute, "of the tests of one mutant; one that hangs is found")
	jobs := flag.Int("jobs", 1, "how many mutants are tested at once")
	only := flag.String("only", "", "only mutants whose name contains this")
	list := flag.Bool("list", false, "list the mutants, and test none")
	flag.Parse()
	if err := test(flag.Args(), run, *timeout, *jobs, *only, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func test(files, run []string, timeout time.Duration, jobs int, only string, list bool) error {
	var all []mutant
	for _, file := range files {
		more, err := mutantsOf(file)
		if err != nil {
			return err
		}
		all = append(all, more...)
	}
	all = slices.DeleteFunc(all, func(m mutant) bool { return !strings.Contains(m.name, only) })
	if list {
		for _, m := range all {
			fmt.Println(m.name)
		}
		return nil
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		count = map[string]int{}
		next  = make(chan mutant)
	)
	for i := range jobs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for m := range next {
				begin := time.Now()
				verdict := try(filepath.Join(dir, fmt.Sprint(i)), m, run, timeout)
				mu.Lock()
				count[verdict]++
				fmt.Printf("%-12s %5.1f s  %s\n", verdict, time.Since(begin).Seconds(), m.name)
				mu.Unlock()
			}
		}()
	}
	for _, m := range all {
		next <- m
	}
	close(next)
	wg.Wait()
	fmt.Println(len(all), "mutants:", count)
	return nil
}

// try tests one mutant of a file in the current directory, and says what became of it.
func try(tmp string, m mutant, run []string, timeout time.Duration) string {
	path, err := filepath.Abs(m.file)
	if err != nil {
		return err.Error()
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: tmp + ".go"}})
	if err != nil {
		return err.Error()
	}
	for name, text := range map[string]string{tmp + ".go": m.text, tmp + ".json": string(overlay)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err.Error()
		}
	}
	if exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+tmp+".json", "-o", tmp+".test", filepath.Dir(path)).Run() != nil {
		return "no code"
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for i, tests := range run {
		c := exec.CommandContext(ctx, tmp+".test", "-test.failfast", "-test.run", tests)
		c.Dir = filepath.Dir(path)
		switch err := c.Run(); {
		case ctx.Err() != nil:
			return "hangs"
		case err != nil:
			return fmt.Sprint("found by ", i+1)
		}
	}
	return "SURVIVES"
}
