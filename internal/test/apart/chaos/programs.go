//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/c8e606e4/leaderelection/internal/test/fleet/upgradetest/newer"
)

// leave has leaderelect built without the stores that no run is on.
const leave = "no_azblob,no_dynamodb,no_gcs,no_mongodb,no_s3,no_sqlite,disable_grpc_modules"

// Programs that are built into a directory, beside this one.
const (
	newerProgram       = "chaos-newer" // this program, with a newer version of the library
	leaderelectProgram = "leaderelect"
)

// buildPrograms builds what candidates run, other than this program itself.
func buildPrograms(root, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	sources, err := os.MkdirTemp("", "chaos-newer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(sources)
	overlay, err := newer.Overlay(root, sources)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"-tags", "newer", "-overlay", overlay, "-o", filepath.Join(dir, newerProgram), "./internal/test/apart/chaos"},
		{"-tags", leave, "-o", filepath.Join(dir, leaderelectProgram), "./cmd/leaderelect"},
	} {
		c := exec.Command("go", append([]string{"build", "-buildvcs=false"}, args...)...)
		c.Dir = root
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w: %s", args[len(args)-1], err, text)
		}
	}
	return nil
}

// prepare sees to it that there are programs.
func (w *world) prepare() (err error) {
	if w.programs == "" {
		w.programs = w.dir
		return buildPrograms(w.root, w.dir)
	}
	w.programs, err = filepath.Abs(w.programs)
	return err
}
