//go:build unix

package runner

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// The test binary is the guard, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == proc.GuardCommand {
		os.Exit(proc.Guard())
	}
	// With the race detector each guard would take a second to exit.
	_ = os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// trial is one leadership of a runner, and what came of it.
type trial struct {
	*Runner
	view   *viewtest.View
	cancel context.CancelCauseFunc
	over   chan struct{} // Elected has returned

	mu       sync.Mutex
	pauses   []time.Duration // before the command was started again
	finished []string
	resigned int
	lines    []string
}

// Handle implements slog.Handler.
func (r *trial) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, record.Message)
	record.Attrs(func(a slog.Attr) bool {
		if record.Message == "starting the command again" && a.Key == "in" {
			r.pauses = append(r.pauses, a.Value.Duration())
		}
		return true
	})
	return nil
}

func (r *trial) Enabled(context.Context, slog.Level) bool { return true }
func (r *trial) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *trial) WithGroup(string) slog.Handler            { return r }

// newTrial returns a trial of a minute that has not begun.
func newTrial(t *testing.T, change func(*Config), args ...string) *trial {
	t.Helper()
	times, err := TimesFor(time.Minute, time.Second, 200*time.Millisecond)
	must(t, err)
	r := &trial{view: viewtest.New(nil, 0), over: make(chan struct{})}
	r.view.Set(time.Now().Add(time.Minute))
	c := Config{Args: args, Store: "file:x", LeaderID: "me", Times: times, Drain: patience, OnFailure: Restart, Delay: 10 * time.Millisecond,
		ExpiryFile: filepath.Join(t.TempDir(), "expiry"), Logger: slog.New(r),
		Resign: func(context.Context) { r.mu.Lock(); r.resigned++; r.mu.Unlock() },
		Finish: func(code int, why error) {
			r.mu.Lock()
			r.finished = append(r.finished, fmt.Sprint(code, " ", why))
			r.mu.Unlock()
		},
	}
	if change != nil {
		change(&c)
	}
	r.Runner = New(c)
	return r
}

// begin begins it.
func (r *trial) begin(t *testing.T) *trial {
	ctx, cancel := context.WithCancelCause(t.Context())
	r.cancel = cancel
	go func() {
		defer close(r.over)
		r.Elected(ctx, r.view.TimeView)
	}()
	t.Cleanup(func() {
		r.cancel(ErrStopped)
		r.Kill()
		<-r.over
	})
	return r
}

// ends waits until Elected has returned.
func (r *trial) ends(t *testing.T) {
	t.Helper()
	select {
	case <-r.over:
	case <-time.After(patience):
		t.Fatalf("the leadership goes on after %v: %q", patience, r.lines)
	}
}

// until waits until is says so.
func (r *trial) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.Now().Add(patience)
	for {
		r.mu.Lock()
		now := is()
		r.mu.Unlock()
		switch {
		case now:
			return
		case time.Now().After(limit):
			t.Fatalf("%s: not within %v: %q", what, patience, r.lines)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// The command's environment, in which what an outer leaderelect has set is replaced, and what is not for
// it is missing.
func TestEnvironment(t *testing.T) {
	for _, name := range Told {
		t.Setenv(name, "theirs")
	}
	t.Setenv("OTHER", "kept")
	t.Setenv("MYSQL_PWD", "theirs, too")
	of := func(change func(*Config)) []string {
		return newTrial(t, change, "unused").of(t.Context()).environment()
	}
	env := of(func(c *Config) {
		c.Withheld, c.Shard, c.Shards = []string{"MYSQL_PWD"}, "orders", 3
		c.LeaseID = func(n leaderelection.ElectionNumber) string { return fmt.Sprintf("lease-%d", n) }
	})
	for _, name := range Told {
		if n := len(slices.DeleteFunc(slices.Clone(env), func(e string) bool { return !strings.HasPrefix(e, name+"=") })); n != 1 {
			t.Errorf("%s is there %d times", name, n)
		}
	}
	for _, want := range []string{"LEADERELECT_TOKEN=7", "LEADERELECT_LEADER_ID=me", "LEADERELECT_STORE=file:x", "LEADERELECT_LEASE_ID=lease-7", "LEADERELECT_SHARD=orders", "LEADERELECT_SHARDS=3", "OTHER=kept"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
	// What there is nothing to say of is not in it, though an outer one has it.
	env = append(env, of(func(c *Config) { c.Store, c.Withheld = "", []string{"MYSQL_PWD"} })...)
	if text := strings.Join(env, "\n"); strings.Contains(text, "theirs") {
		t.Errorf("of another leader:\n%s", text)
	}
}

// A reader of the expiry file finds a whole one at any time, and never an earlier
// time after a later one.
func TestExpiryFileIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "expiry")
	f := newExpiryFile(path)
	begin := time.Unix(1_790_000_000, 0)
	must(t, f.begin(t.Context(), patience, begin))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			if err := f.begin(t.Context(), patience, begin.Add(time.Duration(i)*time.Millisecond)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	var last time.Time
	for reads := 0; ; reads++ {
		text, err := os.ReadFile(path)
		must(t, err)
		lines := strings.Split(string(text), "\n")
		if len(lines) != 3 || lines[2] != "" {
			t.Fatalf("half a file: %q", text)
		}
		at, err := time.Parse(time.RFC3339Nano, lines[1])
		if err != nil || at.Before(last) || lines[0] != fmt.Sprint(at.Unix()) {
			t.Fatalf("%q after %v: %v", text, last, err)
		}
		last = at
		select {
		case <-done:
			if reads < 10 {
				t.Errorf("only %d reads", reads)
			}
			return
		default:
		}
	}
}

// What would keep a leader from running its command is known before the election.
func TestCheck(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	there := filepath.Join(t.TempDir(), "there")
	must(t, os.WriteFile(there, []byte("another leader's"), 0o644))
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

// A job of which nothing was begun leaves the night to others; one that may have begun does not, unless it has not
// succeeded, with HoldOnSuccess.
func TestHoldIsDroppedForWhatWasNotBegun(t *testing.T) {
	t.Parallel()
	garbage := filepath.Join(t.TempDir(), "garbage")
	must(t, os.WriteFile(garbage, []byte("no program"), 0o755))
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
		"begun by an earlier one": {func(r *trial) { r.begun = true; r.file = newExpiryFile("/no/such/dir/expiry") }, []string{"true"}, false},
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
