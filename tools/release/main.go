// Release makes a release of all modules:
//
//	GOWORK=off go -C tools run ./release v0.1.0
//
// In a copy of the repository it writes the version into the requirements that modules have
// of each other, in each go.mod and in go.work, and the sums of those modules into each
// go.sum; it commits that on the branch release/v0.1.0, and makes the tags v0.1.0,
// deciders/s3/v0.1.0 and so on. It prints what it has made, and throws it away.
//
// From v1 on, the young modules (tools/internal/repo lists them) have a version of their own,
// which makes tags such as v1.2.0, deciders/s3/v1.2.0 and shard/v0.9.0:
//
//	GOWORK=off go -C tools run ./release v1.2.0 v0.9.0
//
// With -write the branch and the tags are put into this repository. Nothing is ever pushed.
// With -proxy DIR the modules are also written there, as GOPROXY=file://DIR serves them.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/c8e606e4/leaderelection/tools/internal/repo"
)

func main() {
	write := flag.Bool("write", false, "put the branch and the tags into this repository")
	proxy := flag.String("proxy", "", "a directory to write the modules to, as a file system proxy")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: release [-write] [-proxy DIR] VERSION [VERSION OF YOUNG MODULES]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() < 1 || flag.NArg() > 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), flag.Arg(flag.NArg()-1), *proxy, *write); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version, young, proxy string, write bool) error {
	root, err := repo.Find()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	r, err := Make(root, tmp, version, young, proxy)
	if err != nil {
		return err
	}
	if err := r.show(os.Stdout); err != nil {
		return err
	}
	if !write {
		fmt.Println("\nNothing was changed here. With -write this branch and these tags are put into the repository.")
		return nil
	}
	if err := r.put(root); err != nil {
		return err
	}
	fmt.Printf("\nTo publish, after a look, with the root's tag last: GitHub starts no workflow for tags of which more than three are pushed at once.\n")
	fmt.Printf("git push origin %s $(git tag --points-at %[1]s --list '*/*') && git push origin %s\n", r.Branch, version)
	fmt.Printf("Then merge %s into main, so that its requirements can be looked up.\n", r.Branch)
	return nil
}
