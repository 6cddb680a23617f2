//go:build unix

package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
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
	if err != nil {
		t.Fatal(err)
	}
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

// What --on-failure and --once mean.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*Config)
		args     []string
		finished string
		resigned int
	}{
		"stepdown":       {func(c *Config) { c.OnFailure = StepDown }, []string{"false"}, "[]", 1},
		"exit":           {func(c *Config) { c.OnFailure = Exit }, []string{"sh", "-c", "exit 5"}, "[5 <nil>]", 0},
		"once":           {func(c *Config) { c.Once = true }, []string{"true"}, "[0 <nil>]", 0},
		"once, and fail": {func(c *Config) { c.Once, c.OnFailure = true, StepDown }, []string{"sh", "-c", "exit 3"}, "[3 <nil>]", 0},
		"no expiry file": {func(c *Config) { c.Once, c.ExpiryFile = true, "/no/such/dir/expiry" }, []string{"true"}, "[125 <nil>]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t, c.change, c.args...).begin(t)
			r.ends(t)
			if got := fmt.Sprint(r.finished); got != c.finished || r.resigned != c.resigned {
				t.Errorf("finished %s, resigned %d times: %q", got, r.resigned, r.lines)
			}
			if left, _ := filepath.Glob(r.c.ExpiryFile + "*"); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// Who has given up runs nothing; who has begun cannot give up.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	for _, change := range []func(*Config){func(c *Config) { c.Once = true }, func(c *Config) { c.Single = true }} {
		r := newTrial(t, change, "touch", ran)
		if !r.GiveUp() {
			t.Error("nothing has begun, and yet it cannot be given up")
		}
		r.begin(t).ends(t)
		if _, err := os.Stat(ran); err == nil || len(r.finished) > 0 {
			t.Errorf("it ran: %v %q", err, r.finished)
		}
	}
	r := newTrial(t, nil, "sleep", "600").begin(t)
	r.until(t, "a start", func() bool { return slices.Contains(r.lines, "the command is started") })
	if r.GiveUp() {
		t.Error("given up what has begun")
	}
}

// The command's environment, in which what an outer leaderelect has set is replaced;
// and the file that follows the view.
func TestEnvironment(t *testing.T) {
	for _, name := range Told {
		t.Setenv(name, "theirs")
	}
	t.Setenv("OTHER", "kept")
	t.Setenv("MYSQL_PWD", "theirs, too")
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r := newTrial(t, func(c *Config) {
		c.Stdout, c.Withheld, c.Shard, c.Shards = out, []string{"MYSQL_PWD"}, "orders", 3
		c.LeaseID = func(n leaderelection.ElectionNumber) string { return fmt.Sprintf("lease-%d", n) }
	}, "sh", "-c", "env; echo complete; exec sleep 600").begin(t)
	var text string
	r.until(t, "its environment", func() bool {
		data, _ := os.ReadFile(out.Name())
		text = string(data)
		return strings.Contains(text, "complete")
	})
	for _, want := range []string{"LEADERELECT_TOKEN=0", "LEADERELECT_LEADER_ID=me", "LEADERELECT_STORE=file:x", "LEADERELECT_EXPIRY_FILE=" + r.c.ExpiryFile, "LEADERELECT_LEASE_ID=lease-0", "LEADERELECT_SHARD=orders", "LEADERELECT_SHARDS=3", "OTHER=kept"} {
		if strings.Count(text, want+"\n") != 1 {
			t.Errorf("no one %s in\n%s", want, text)
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "LEADERELECT_") && !slices.Contains(Told, name) {
			t.Errorf("Told lacks %s", name)
		}
	}
	if strings.Contains(text, "theirs") {
		t.Errorf("of another leader:\n%s", text)
	}

	next := time.Now().Add(2 * time.Minute)
	r.view.Set(next)
	r.Extended(leaderelection.ViewExtended{})
	want := fmt.Sprintf("%d\n%s\n", next.Unix(), next.UTC().Format(time.RFC3339Nano))
	r.until(t, "the new end in the file", func() bool { now, _ := os.ReadFile(r.c.ExpiryFile); return string(now) == want })
}

// A reader of the expiry file finds a whole one at any time, and never an earlier
// time after a later one.
func TestExpiryFileIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "expiry")
	f := newExpiryFile(path)
	begin := time.Unix(1_790_000_000, 0)
	if err := f.begin(t.Context(), patience, begin); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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

// Leadership that ends by choice ends the command by the signal that was asked for;
// a view that is over kills it.
func TestEnds(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	script := `trap 'echo int >>"$0"; exit 6' INT; trap "" TERM; echo up >>"$0"; while :; do sleep 0.05; done`
	up := func(r *trial, n int) {
		r.until(t, "a start", func() bool { text, _ := os.ReadFile(out); return strings.Count(string(text), "up") == n })
	}
	r := newTrial(t, func(c *Config) { c.Once = true }, "sh", "-c", script, out).begin(t)
	up(r, 1)
	r.StopBy(syscall.SIGINT)
	r.cancel(fmt.Errorf("%w by a test", ErrStopped))
	r.ends(t)
	if text, _ := os.ReadFile(out); string(text) != "up\nint\n" || fmt.Sprint(r.finished) != "[6 <nil>]" {
		t.Errorf("%q, finished %q", text, r.finished)
	}

	r = newTrial(t, func(c *Config) { c.Once = true }, "sh", "-c", script, out).begin(t)
	up(r, 2)
	r.cancel(leaderelection.ErrOusted)
	r.view.Set(time.Now().Add(-time.Second))
	r.ends(t)
	if got := fmt.Sprint(r.finished); !strings.HasPrefix(got, "[125 leadership ended before the command had") {
		t.Errorf("finished %s", got)
	}
	if !slices.Contains(r.lines, "killing the command: the view is over") && !slices.Contains(r.lines, "asking the command to end") {
		t.Errorf("%q", r.lines)
	}
}

// While the view leaves no room for a command, none is started.
func TestRoom(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	r := newTrial(t, nil, "sh", "-c", `echo up >>"$0"; exec sleep 600`, ran)
	r.view.Set(time.Now().Add(r.c.Times.Grace + r.c.Times.Margin))
	r.begin(t)
	<-time.After(300 * time.Millisecond)
	if _, err := os.Stat(ran); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("started when it was about to be ended")
	}
	r.view.Set(time.Now().Add(time.Minute))
	r.Extended(leaderelection.ViewExtended{})
	r.until(t, "a start", func() bool { _, err := os.Stat(ran); return err == nil })
}

// A command that ends well is started again, under each policy, however soon and often: that is no
// failure.
func TestEndsWellAgainAndAgain(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	for _, policy := range []Policy{Restart, StepDown, Exit} {
		r := newTrial(t, func(c *Config) { c.OnFailure, c.Delay = policy, time.Millisecond }, "true").begin(t)
		r.until(t, "more starts than Attempts", func() bool { return len(r.pauses) > Attempts+1 })
		r.until(t, string(policy), func() bool { return r.resigned == 0 && len(r.finished) == 0 && r.Healthy(t.Context()) == nil })
	}
}

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
