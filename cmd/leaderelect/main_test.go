//go:build unix

package main

import (
	"flag"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
)

// The test binary is leaderelect, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == proc.GuardCommand { // which goes by another name
		main()
	}
	testscript.Main(patient{m}, map[string]func(){
		"leaderelect": main,
	})
}

// patient runs more tests at once than there are processors: they mostly wait.
type patient struct{ *testing.M }

func (p patient) Run() int {
	flag.Parse()
	// Under nohup what is started would ignore it, too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// With the race detector each process would take a second to exit.
	_ = os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = flag.Set("test.parallel", "4")
	}
	dir, err := os.MkdirTemp("", "child")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "./internal/child")
	if build.Stderr = os.Stderr; build.Run() != nil {
		log.Print("the child that leaderelect runs is not built")
		return 1
	}
	_ = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return p.M.Run()
}
