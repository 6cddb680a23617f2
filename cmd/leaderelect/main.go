// Command leaderelect makes any program a candidate of an election, on any store
// that the library knows, by URL:
//
//	leaderelect run gs://bucket/nightly -- ./report.sh
//
// See leaderelect help, and the README beside this file.
package main

import (
	"os"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
