//go:build (linux || darwin) && go1.25

package file_test

import (
	"path/filepath"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
)

// Three candidates in processes of their own: one is killed, one stopped past its
// term. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	proctest.Run(t, proctest.Options{Address: "file://" + filepath.Join(tempDir(t), "election.json")})
}
