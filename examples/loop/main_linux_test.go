package main

import (
	"path/filepath"
	"testing"

	"github.com/c8e606e4/leaderelection/examples/internal/terminals"
)

func TestMain(m *testing.M) {
	terminals.Main("loop", main)
	m.Run()
}

// The second program of docs/go-service.md leads, and hands over when it ends.
func TestLoop(t *testing.T) {
	election := filepath.Join(t.TempDir(), "election.json")
	one := terminals.Command(t, "loop", "ELECTION="+election)
	one.Await("act with token 1")
	two := terminals.Command(t, "loop", "ELECTION="+election)
	one.CtrlC()
	two.Await("act with token 2")
	two.CtrlC()
}
