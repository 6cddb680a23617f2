package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The test binary is leaderelect, too, and what leaderelect runs in tests.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"leaderelect": main,
		"child":       func() { os.Exit(child(os.Args[1:])) },
	})
}
