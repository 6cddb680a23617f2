package proctest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// switches is how often the threads of a process have been switched to: what
// /proc/PID/status says of each, added up.
func switches(t testing.TB, pid int) (n int) {
	t.Helper()
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(all) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, path := range all {
		text, _ := os.ReadFile(path) // a thread that has ended
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 2 && strings.HasSuffix(f[0], "ctxt_switches:") {
				if k, err := strconv.Atoi(f[1]); err == nil {
					n += k
				}
			}
		}
	}
	return n
}

// Sleeps fails t unless a process comes to rest: so that its threads are switched to
// at most so many times a second, for some seconds. It takes Go's runtime some
// time to tidy up after the start of a program; with the race detector it never rests.
func Sleeps(t testing.TB, what string, pid, perSecond int) {
	t.Helper()
	stores.Nightly(t, "it counts wake-ups for some seconds")
	const seconds = 4
	for limit := time.Now().Add(time.Minute); ; {
		before := switches(t, pid)
		<-time.After(seconds * time.Second)
		n := switches(t, pid) - before
		t.Logf("%s: %d context switches in %d s", what, n, seconds)
		switch {
		case n <= perSecond*seconds:
			return
		case time.Now().After(limit):
			t.Errorf("%s: %d context switches in %d s, want %d a second at most", what, n, seconds, perSecond)
			return
		}
	}
}
