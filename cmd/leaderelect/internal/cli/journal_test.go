//go:build unix

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// In systemd's journal a line has the priority of its level; elsewhere, even if only the
// variable is inherited, it has none.
func TestJournal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	for stream, want := range map[string]string{
		fmt.Sprintf("%d:%d", stat.Dev, stat.Ino):   "<7> <6> <4> <3> <4> <3>",
		fmt.Sprintf("%d:%d", stat.Dev, stat.Ino+1): "",
		"": "",
	} {
		for _, format := range []string{"text", "json"} {
			t.Setenv("JOURNAL_STREAM", stream)
			if err := file.Truncate(0); err != nil {
				t.Fatal(err)
			}
			if _, err := file.Seek(0, 0); err != nil {
				t.Fatal(err)
			}
			a := &app{errOut: file}
			a.common.logFormat, a.common.logLevel = format, "debug"
			log := a.logger()
			log.Debug("d")
			log.Info("i")
			log.Warn("w")
			log.Error("e")
			log.With("a", 1).WithGroup("g").Warn("w")
			a.complain("it failed")
			a.log().Flush(time.Minute)
			text, err := os.ReadFile(file.Name())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "<") {
					got = append(got, line[:3])
				}
			}
			if strings.Join(got, " ") != want || strings.Count(string(text), "\n") != 6 {
				t.Errorf("%s, %q: %q, want %s", format, stream, text, want)
			}
		}
	}
}
