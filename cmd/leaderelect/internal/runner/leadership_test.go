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
	"testing"
	"testing/synctest"
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
			comes(t, "the end", r.over)
			if (dropped == 1) != c.dropped || dropped > 1 {
				t.Errorf("dropped %d times; finished %q: %q", dropped, r.finished, r.lines)
			}
		})
	}
}

// errTest is a cause of the end by somebody who asks the program to end.
var errTest = fmt.Errorf("%w by a test", ErrStopped)

// leads is a View that a test sets.
type leads struct {
	end  time.Time
	over bool
}

func (v *leads) Get() time.Time                                { return v.end }
func (v *leads) ValueInFuture() bool                           { return !v.over }
func (v *leads) ElectionNumber() leaderelection.ElectionNumber { return 7 }

// of returns a leadership of a trial, without anything that runs.
func (r *trial) of(ctx context.Context) *leadership {
	return &leadership{Runner: r.Runner, ctx: ctx, view: &leads{end: time.Now().Add(time.Hour)}, log: r.c.Logger}
}

// What follows when a command has ended: by itself, or since it was made to.
func TestWhatFollows(t *testing.T) {
	const killed = codeKilled
	once := func(c *Config) { c.Once = true }
	for name, c := range map[string]struct {
		change   func(*Config)
		cause    error // of the leadership's end; nil: it goes on
		status   proc.Status
		forced   bool
		over     bool
		finished string // empty: not
		pauses   int
	}{
		"once, and asked to end":             {once, errTest, proc.Status{Code: 6}, true, true, "6 <nil>", 0},
		"once, and ousted":                   {once, leaderelection.ErrOusted, proc.Status{Code: 6}, true, true, "125 leadership ended before the command had: " + leaderelection.ErrOusted.Error(), 0},
		"once, and the view is over":         {once, nil, proc.Status{Code: 6}, true, true, "125 leadership ended before the command had: " + leaderelection.ErrExpired.Error(), 0},
		"once, and by itself":                {once, nil, proc.Status{Code: 6}, false, true, "6 <nil>", 0},
		"once, and by itself when ousted":    {once, leaderelection.ErrOusted, proc.Status{Code: 6}, false, true, "6 <nil>", 0},
		"asked to end, and killed":           {nil, errTest, proc.Status{Code: killed, Killed: true}, true, true, "137 <nil>", 0},
		"ousted, and killed":                 {nil, leaderelection.ErrOusted, proc.Status{Code: killed, Killed: true}, true, false, "", 0},
		"asked to end; its children killed":  {nil, errTest, proc.Status{Code: 3, Killed: true}, true, false, "", 0},
		"asked to end; killed by another":    {nil, errTest, proc.Status{Code: killed}, true, false, "", 0},
		"the view left no room":              {nil, nil, proc.Status{Code: 6, Expired: true}, true, false, "", 0},
		"by itself when ousted":              {nil, leaderelection.ErrOusted, proc.Status{Code: 6}, false, false, "", 0},
		"the same, and a failure is an exit": {func(c *Config) { c.OnFailure = Exit }, leaderelection.ErrOusted, proc.Status{Code: 6}, false, false, "", 0},
		"a failure is an exit":               {func(c *Config) { c.OnFailure = Exit }, nil, proc.Status{Code: 6}, false, true, "6 <nil>", 0},
		"a good end is none":                 {func(c *Config) { c.OnFailure = Exit }, nil, proc.Status{}, false, false, "", 1},
		"a failure":                          {nil, nil, proc.Status{Code: 6}, false, false, "", 1},
		"a failure steps down":               {func(c *Config) { c.OnFailure = StepDown }, nil, proc.Status{Code: 6}, false, true, "", 0},
		"a good end does not":                {func(c *Config) { c.OnFailure = StepDown }, nil, proc.Status{}, false, false, "", 1},
		"a failure, and no other leadership": {func(c *Config) { c.OnFailure, c.Single = StepDown, true }, nil, proc.Status{Code: 6}, false, true, "6 the command failed with code 6, 1 times in a row", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.cause != nil {
					cancel(c.cause)
				}
				r := newTrial(t, c.change, "unused")
				over := r.of(ctx).after(c.status, c.forced, time.Millisecond)
				if over != c.over || strings.Join(r.finished, ", ") != c.finished || len(r.pauses) != c.pauses {
					t.Errorf("over: %v, want %v; finished %q, want %q; pauses %v", over, c.over, r.finished, c.finished, r.pauses)
				}
			})
		})
	}
}

// The pause doubles with each quick end, up to its most, and begins again after a run that was not
// quick. If nobody can be let lead, the command is started for ever.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = time.Second
		r := newTrial(t, func(c *Config) { c.Delay, c.Resign = delay, nil }, "unused")
		l := r.of(t.Context())
		for i := range 10 {
			took := quick * delay
			if i == 8 {
				took++
			}
			begun := time.Now()
			if l.retry(proc.Status{Code: 1}, took) {
				t.Fatal("it steps down, and nobody can lead instead")
			}
			if waited := time.Since(begun); waited != r.pauses[i] {
				t.Errorf("it has waited for %v, and says %v", waited, r.pauses[i])
			}
		}
		want := []time.Duration{1, 2, 4, 8, 16, 32, mostDelays, mostDelays, 1, 2}
		for i := range want {
			want[i] *= delay //nolint:durationcheck // they are numbers of delays
		}
		if !slices.Equal(r.pauses, want) {
			t.Errorf("pauses %v, want %v", r.pauses, want)
		}
	})
}

// A leader whose command fails again and again, soon after its start, lets another lead, and stays out for
// the pause that it would have made. So it does at once if the command fails in the next leadership, until
// one has run for a while. A good end is no failure, however soon and often.
func TestQuickFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = time.Second
		r := newTrial(t, func(c *Config) { c.Delay = delay }, "unused")
		l := r.of(t.Context())
		ends := func(n, code int, took time.Duration) (over bool) {
			for i := range n {
				if over = l.retry(proc.Status{Code: code}, took); over && i < n-1 {
					t.Errorf("it steps down at failure %d of %d", i+1, n)
				}
			}
			return over
		}
		if ends(2*Attempts, 0, 0) {
			t.Error("it steps down though the command ends well")
		}
		l.pause = delay
		if !ends(Attempts, 3, 0) || r.resigned != 1 {
			t.Errorf("resigned %d times after %d failures", r.resigned, Attempts)
		}
		if err := r.Healthy(t.Context()); !errors.Is(err, ErrStandingDown) || !strings.Contains(fmt.Sprint(err), "with code 3, 5 times in a row") {
			t.Errorf("healthy: %v", err)
		}
		if time.Sleep(16 * delay); r.Healthy(t.Context()) != nil {
			t.Error("it stays out for longer than the pause")
		}
		if !ends(1, 3, 0) || ends(1, 3, quick*delay+1) || !ends(Attempts-1, 3, 0) {
			t.Error("it does not step down at once, or does though the command has run for a while")
		}
	})
}

// The end of the leadership ends the pause.
func TestPauseIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newTrial(t, func(c *Config) { c.Delay = time.Hour }, "unused").of(ctx)
		begun := time.Now()
		time.AfterFunc(time.Second, cancel)
		if l.retry(proc.Status{Code: 1}, 0) || time.Since(begun) != time.Second {
			t.Errorf("it waits %v of a leadership that is over after a second", time.Since(begun))
		}
	})
}

// Who steps down stays out from then on, not only when leadership is over.
func TestStandingDownBeginsBeforeResigning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var healthy error
		var r *trial
		r = newTrial(t, func(c *Config) {
			c.OnFailure, c.Delay = StepDown, time.Minute
			c.Resign = func(ctx context.Context) { healthy = r.Healthy(ctx) }
		}, "unused")
		if !r.of(t.Context()).retry(proc.Status{Code: 1}, 0) || !errors.Is(healthy, ErrStandingDown) {
			t.Errorf("when it resigns, it is healthy: %v", healthy)
		}
	})
}

// Leadership that is over before there was room to start the command in: that is told of a run that
// is not to be repeated, unless the program was asked to end.
func TestOverBeforeItRan(t *testing.T) {
	const lost = "125 leadership ended before the command had: "
	for name, c := range map[string]struct {
		change   func(*Config)
		cause    error
		finished string
	}{
		"ousted":               {nil, leaderelection.ErrOusted, ""},
		"once, ousted":         {func(c *Config) { c.Once = true }, leaderelection.ErrOusted, lost + leaderelection.ErrOusted.Error()},
		"once, asked to end":   {func(c *Config) { c.Once = true }, errTest, ""},
		"single, ousted":       {func(c *Config) { c.Single = true }, leaderelection.ErrOusted, lost + leaderelection.ErrOusted.Error()},
		"single, asked to end": {func(c *Config) { c.Single = true }, errTest, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(c.cause)
			r := newTrial(t, c.change, "false")
			r.Elected(ctx, r.view.TimeView)
			if got := strings.Join(r.finished, ", "); got != c.finished || slices.Contains(r.lines, "the command is started") {
				t.Errorf("finished %q, want %q; %q", got, c.finished, r.lines)
			}
		})
	}
}

// A command is started only if it can run for a while, end in its grace, and be dead by the end
// of a view that is not over.
func TestRoomForACommand(t *testing.T) {
	times := Times{Span: 100 * time.Hour, Margin: time.Hour, Grace: 10 * time.Hour}
	for name, c := range map[string]struct {
		view leads
		left time.Duration // of the view
		want bool
	}{
		"room":                      {leads{}, 12*time.Hour + 10*time.Minute, true},
		"a little less":             {leads{}, 12*time.Hour - 10*time.Minute, false},
		"no margin":                 {leads{}, 11*time.Hour + 10*time.Minute, false},
		"no grace":                  {leads{}, 2*time.Hour + 10*time.Minute, false},
		"a view that is over early": {leads{over: true}, 50 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				l := newTrial(t, func(c *Config) { c.Times = times }, "unused").of(ctx)
				c.view.end = time.Now().Add(c.left)
				l.view = &c.view
				if left, want := l.deadline().Left(), c.left-times.Margin; left > want || left < want-time.Minute {
					t.Errorf("%v until the command is killed, want %v", left, want)
				}
				time.AfterFunc(time.Second, cancel) // which is all that ends it if there is no room
				if got := l.room(); got != c.want {
					t.Errorf("room: %v, want %v", got, c.want)
				}
				cancel()
				if l.room() {
					t.Error("room in a leadership that is over")
				}
			})
		})
	}
}

// No guard is kept for another command when none can follow.
func TestNoGuardIsKeptForNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		kept   bool
	}{
		"it goes on": {nil, true},
		"once":       {func(c *Config) { c.Once = true }, false},
		"single":     {func(c *Config) { c.Single = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cause := range []error{leaderelection.ErrOusted, errTest} {
				r := newTrial(t, c.change, "sleep", "600")
				defer r.Close()
				must(t, r.Prepare())
				r.begin(t)
				r.until(t, "a start", func() bool { return slices.Contains(r.lines, "the command is started") })
				r.cancel(cause)
				comes(t, "the end", r.over)
				if r.p != nil {
					t.Errorf("%v: it is over, and process %d runs", cause, r.p.Pid())
				}
				waits := r.take()
				defer waits.Close()
				if want := c.kept && !errors.Is(cause, ErrStopped); (waits != nil) != want {
					t.Errorf("%v: a guard is kept: %v, want %v", cause, waits != nil, want)
				}
			}
		})
	}
}

// One guard waits at a time, and none when the runner is closed.
func TestOneGuardWaits(t *testing.T) {
	t.Parallel()
	r := newTrial(t, nil, "unused")
	r.again()
	if r.ready != nil {
		t.Error("a guard waits that nobody has asked for")
	}
	err := r.Prepare()
	first := r.ready
	err = errors.Join(err, r.Prepare())
	if err != nil {
		t.Error(err)
	}
	if r.again(); first == nil || r.ready != first {
		t.Error("more than one guard waits, or none")
	}
	r.Close()
	if r.again(); r.ready != nil {
		t.Error("a guard waits for a runner that is closed")
	}
}
