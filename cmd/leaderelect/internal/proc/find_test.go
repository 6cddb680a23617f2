//go:build unix

package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What keeps a command from being started is known before it is to be.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", "/usr/bin:/bin")
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string // of the error; empty: it can be run, as far as can be seen
		code int
	}{
		"a script":                    {"#!/bin/sh\n", 0o755, "", 0},
		"spaces":                      {"#! /bin/sh -e\n", 0o755, "", 0},
		"no end of the line":          {"#!/bin/sh", 0o755, "", 0},
		"env":                         {"#!/usr/bin/env sh\n", 0o755, "", 0},
		"env with options":            {"#!/usr/bin/env -S A=b sh -e\n", 0o755, "", 0},
		"env with what is not parsed": {"#!/usr/bin/env -i nobody\n", 0o755, "", 0},
		"no script":                   {"\x7fELF", 0o755, "", 0},
		"empty":                       {"", 0o755, "", 0},
		"not to be read":              {"#!/no/such/thing\n", 0o111, "", 0},
		"not executable":              {"#!/bin/sh\n", 0o644, "permission denied", CodeCannotStart},
		"no interpreter":              {"#!/no/such/python\n", 0o755, `"/no/such/python"`, CodeCannotStart},
		"one that cannot be executed": {"#!/etc/passwd\n", 0o755, "permission denied", CodeCannotStart},
		"carriage return":             {"#!/bin/sh\r\necho\r\n", 0o755, "carriage return", CodeCannotStart},
		"env does not find it":        {"#!/usr/bin/env no-such-python\n", 0o755, `"no-such-python"`, CodeCannotStart},
		"env and carriage return":     {"#!/usr/bin/env sh\r\n", 0o755, "carriage return", CodeCannotStart},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if c.mode == 0o111 && os.Geteuid() == 0 {
			continue // root may read it
		}
		_, err := Find(path, false)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		} else if err != nil && CodeOf(err) != c.code {
			t.Errorf("%s: code %d, want %d", name, CodeOf(err), c.code)
		}
	}
}
