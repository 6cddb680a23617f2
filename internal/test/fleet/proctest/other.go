//go:build !unix

package proctest

import "testing"

// Run skips the test: processes are stopped and let go on by signals of Unix.
func Run(t *testing.T, _ Options) {
	t.Skip("proctest stops and kills processes by signals of Unix")
}

// RunGroup skips the test, as Run does.
func RunGroup(t *testing.T, _ GroupOptions) {
	t.Skip("proctest stops and kills processes by signals of Unix")
}
