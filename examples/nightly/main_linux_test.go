package main

import (
	"testing"

	"github.com/c8e606e4/leaderelection/examples/internal/terminals"
)

func TestMain(m *testing.M) {
	terminals.Main("nightly", main)
	m.Run()
}

// docs/batch-job.md, followed word by word: the job is done once.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	page := terminals.Open(t, "batch-job.md", "nightly")
	one := page.Type(0)
	one.Ends()
	two := page.Type(1)
	two.Ends()
	page.Check(one.Log() + two.Log())
}
