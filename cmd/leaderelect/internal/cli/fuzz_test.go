package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
)

// FuzzSettingsFile reads any file of settings: what is read keeps what the flags promise, and what is
// not names the file.
func FuzzSettingsFile(f *testing.F) {
	for _, s := range []string{
		"id = a\nterm = 3s\nskew = 1s\n", "# a comment\n\n host-port = a:1,b:2\n", "term = -1s", "term=9223372036854775807ns\nskew=1ns", "skew = 10s",
		"id=a\nid=b", "config = x", "no-such = 1", "id", "= a", "params = @/dev/null", "clocks = maybe", "clocks = shared\nskew = 1s", "log-level = debug+3", "host-port = \"a\nb\"",
		"store = s3://id:secret@b/k", "\xff = \xff", "id = " + strings.Repeat("x", 70_000),
	} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	path := filepath.Join(dir, "settings")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		a := &app{in: strings.NewReader(""), out: io.Discard, errOut: &out}
		cmd := &cobra.Command{Use: "probe"}
		a.common.flags(cmd.Flags())
		a.common.config = path
		c := &a.common
		if err := a.fromFile(cmd, path); err != nil {
			if !strings.Contains(err.Error(), path) && !strings.Contains(err.Error(), "--config") {
				t.Errorf("the error does not say where: %v", err)
			}
			return
		}
		if c.config != path {
			t.Errorf("a file of settings names another one: %q", c.config)
		}
		if c.checkTimes() == nil && (c.term <= 0 || c.skew <= 0 && c.clocks != leaderelection.SharedClock || c.skew > c.term-c.skew || c.poll < 0) {
			t.Errorf("term %v, skew %v, poll %v pass", c.term, c.skew, c.poll)
		}
	})
}
