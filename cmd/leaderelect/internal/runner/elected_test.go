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
