//go:build unix

package main

import (
	"flag"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The test binary is leaderelect, too, and what leaderelect runs in tests.
func TestMain(m *testing.M) {
	testscript.Main(patient{m}, map[string]func(){
		"leaderelect": main,
		"child":       func() { os.Exit(child(os.Args[1:])) },
	})
}

// patient runs more tests at once than there are processors: they mostly wait.
type patient struct{ *testing.M }

func (p patient) Run() int {
	flag.Parse()
	// With the race detector each process would take a second to exit.
	_ = os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = flag.Set("test.parallel", "8")
	}
	return p.M.Run()
}
