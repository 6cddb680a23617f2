//go:build unix

package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// What would keep a leader from running its command is known before the election.
func TestCheck(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, []byte("another leader's"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tmp, expiry string
		want        string // empty: nothing is wrong
	}{
		"a temp directory":              {t.TempDir(), "", ""},
		"none":                          {missing, "", "have TMPDIR name a directory that can be written to"},
		"none, and none needed":         {missing, filepath.Join(t.TempDir(), "expiry"), ""},
		"a file that is there":          {t.TempDir(), there, ""},
		"a directory that is not":       {t.TempDir(), filepath.Join(missing, "expiry"), "the expiry file: "},
		"a directory in a file's place": {t.TempDir(), t.TempDir(), "exists, and is not a file"},
	} {
		t.Setenv("TMPDIR", c.tmp)
		err := New(Config{ExpiryFile: c.expiry}).Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if left, _ := filepath.Glob(filepath.Join(c.tmp, "leaderelect-*")); len(left) > 0 {
			t.Errorf("%s: left behind: %q", name, left)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(c.expiry), ".*")); c.expiry != "" && len(left) > 0 {
			t.Errorf("%s: left behind: %q", name, left)
		}
	}
	if text, err := os.ReadFile(there); err != nil || string(text) != "another leader's" {
		t.Errorf("%q, %v", text, err)
	}
}

// A temp directory that is gone when the leadership begins is a failure like others; when
// it is there again, the command runs.
func TestTempDirectoryGoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tmp")
	t.Setenv("TMPDIR", dir)
	r := newTrial(t, func(c *Config) { c.ExpiryFile = "" }, "sh", "-c", `test -s "$LEADERELECT_EXPIRY_FILE" && exec sleep 600`).begin(t)
	r.until(t, "a failure", func() bool { return slices.Contains(r.lines, "the command did not run") })
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.until(t, "a start", func() bool { return slices.Contains(r.lines, "the command is started") })
	if slices.Contains(r.lines, "the command has ended") {
		t.Errorf("%q", r.lines)
	}
}

// A leader whose command fails again and again, soon after its start, lets another
// lead, and stays out for the pause that it would have made. So it does at once if
// the command fails in the next leadership, until one has run for a while.
func TestQuickFailures(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	const delay = 200 * time.Millisecond
	// It fails, but for the seventh time: that runs for a while before.
	r := newTrial(t, func(c *Config) { c.Delay = delay }, "sh", "-c", `echo x >>"$0"; test $(grep -c x "$0") = 7 && sleep 2.5; exit 3`, ran)
	attempts := func() int { text, _ := os.ReadFile(ran); return strings.Count(string(text), "x") }
	lead := func(want int) {
		t.Helper()
		r.over = make(chan struct{})
		r.begin(t).ends(t)
		if got := attempts(); got != want {
			t.Errorf("%d attempts, want %d", got, want)
		}
	}
	lead(Attempts)
	if r.resigned != 1 || !slices.Contains(r.lines, "stepping down, since the command failed: another candidate may be able to run it; this one stays out for a term, or for back_after if that is longer") {
		t.Errorf("resigned %d times: %q", r.resigned, r.lines)
	}
	if want := []time.Duration{delay, 2 * delay, 4 * delay, 8 * delay}; !slices.Equal(r.pauses, want) {
		t.Errorf("pauses %v, want %v", r.pauses, want)
	}
	if err := r.Healthy(t.Context()); !errors.Is(err, ErrStandingDown) || !strings.Contains(fmt.Sprint(err), "with code 3, 5 times in a row") {
		t.Errorf("healthy: %v", err)
	}
	r.until(t, "health", func() bool { return r.Healthy(t.Context()) == nil })
	lead(Attempts + 1)
	if r.resigned != 2 || r.failed != Attempts+1 {
		t.Errorf("resigned %d times, after %d failures", r.resigned, r.failed)
	}
	lead(Attempts + 1 + Attempts) // the first of these has run for a while
	if r.resigned != 3 || r.failed != Attempts {
		t.Errorf("resigned %d times, after %d failures", r.resigned, r.failed)
	}
}

// A command that has to be killed when its time is over is said to have been, and
// does not look like a good end.
func TestDrainIsOver(t *testing.T) {
	t.Parallel()
	up := filepath.Join(t.TempDir(), "up")
	r := newTrial(t, func(c *Config) { c.Drain = 100 * time.Millisecond }, "sh", "-c", `trap "" TERM; echo >"$0"; while :; do sleep 0.05; done`, up).begin(t)
	r.until(t, "a start", func() bool { _, err := os.Stat(up); return err == nil })
	r.cancel(fmt.Errorf("%w by a test", ErrStopped))
	r.ends(t)
	if fmt.Sprint(r.finished) != "[137 <nil>]" || !slices.Contains(r.lines, "the command, or what it had started, did not end in the time that it had, and was killed") {
		t.Errorf("finished %q: %q", r.finished, r.lines)
	}
}

// The store's URL is not in the environment if it is not to be, even if it is in
// this program's.
func TestEnvironmentWithoutStore(t *testing.T) {
	t.Setenv("LEADERELECT_STORE", "redis://:password@host")
	for _, e := range Environment(7, "me", "", nil) {
		if strings.Contains(e, "password") || strings.HasPrefix(e, "LEADERELECT_STORE=") {
			t.Errorf("%s", e)
		}
	}
}

// A job of which nothing was begun leaves the night to others; one that may have begun does not, unless it has not
// succeeded, with HoldOnSuccess.
func TestHoldIsDroppedForWhatWasNotBegun(t *testing.T) {
	t.Parallel()
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	onSuccess := func(r *trial) { r.c.HoldOnSuccess = true }
	for name, c := range map[string]struct {
		change  func(r *trial)
		args    []string
		dropped bool
	}{
		"it has run":              {nil, []string{"true"}, false},
		"it has failed":           {nil, []string{"sh", "-c", "exit 126"}, false},
		"no program":              {nil, []string{garbage}, true},
		"no expiry file":          {func(r *trial) { r.file = newExpiryFile("/no/such/dir/expiry") }, []string{"true"}, true},
		"no time left":            {func(r *trial) { r.c.Times.Margin = 2 * time.Minute; r.view.Set(time.Now()) }, []string{"true"}, true},
		"given up when elected":   {func(r *trial) { r.GiveUp() }, []string{"true"}, true},
		"begun by an earlier one": {func(r *trial) { r.claimed.Store(true); r.begun.Store(true) }, []string{"true"}, false},
		"too long an argument":    {nil, []string{"true", strings.Repeat("x", 1<<22)}, true},
		"it has succeeded":        {onSuccess, []string{"true"}, false},
		"it has not succeeded":    {onSuccess, []string{"sh", "-c", "exit 3"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dropped := 0
			r := newTrial(t, func(c *Config) { c.Once = true; c.DropHold = func() { dropped++ } }, c.args...)
			if c.change != nil {
				c.change(r)
			}
			r.begin(t)
			if name == "no time left" {
				r.cancel(errTest)
			}
			r.ends(t)
			if (dropped == 1) != c.dropped || dropped > 1 {
				t.Errorf("dropped %d times; finished %q: %q", dropped, r.finished, r.lines)
			}
		})
	}
}
