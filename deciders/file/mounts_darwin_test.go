//go:build go1.25

package file_test

import "testing"

// On macOS a file system of one's own takes hdiutil and root; the code under
// test is the same as on Linux, where these tests run.
func inMounts(t *testing.T, _ func(t *testing.T)) { t.Skip("needs mounts of its own: runs on Linux") }

func mountTmpfs(t *testing.T, _ string) string { return t.TempDir() }

func mountTmpfsAt(*testing.T, string, string) {}
