//go:build go1.25

package decidertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/fleet"
)

// recorder is a test that may fail without failing the test it stands in.
type recorder struct {
	testing.TB
	ctx      context.Context
	mu       sync.Mutex
	failures []string
	skips    []string
	cleanups []func()
}

func (r *recorder) record(to *[]string, s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, s)
}

func (r *recorder) Helper()                      {}
func (r *recorder) Context() context.Context     { return r.ctx }
func (r *recorder) Log(args ...any)              {}
func (r *recorder) Logf(f string, args ...any)   {}
func (r *recorder) Error(args ...any)            { r.record(&r.failures, fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.record(&r.failures, fmt.Sprintf(f, args...)) }
func (r *recorder) Fatal(args ...any)            { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }
func (r *recorder) Skipf(f string, args ...any) {
	r.record(&r.skips, fmt.Sprintf(f, args...))
	runtime.Goexit()
}
func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// allGroups is the suite with all that Options add, and what is looked at after a pause.
func allGroups() []group {
	o := Options{Address: func(leaderelection.RaceDecider) string { return "" }, Proxy: &Proxy{}}
	return append(o.groups(), group{"Pause", []check{{"RecordIsStillThere", func(h *harness) { leaveAlone(h)(h.TB) }}}})
}

// failuresWith runs the check called name ("group/check") with these Options, and returns how it failed.
func failuresWith(t *testing.T, o Options, name string, newElection func(testing.TB) func() leaderelection.RaceDecider) []string {
	t.Helper()
	o.Pause = 300 * time.Millisecond
	group, name, _ := strings.Cut(name, "/")
	for _, g := range allGroups() {
		for _, c := range g.checks {
			if g.name != group || c.name != name {
				continue
			}
			ctx, cancel := context.WithCancel(t.Context())
			r := &recorder{TB: t, ctx: ctx}
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.run(newHarness(r, o.withDefaults(), newElection))
			}()
			<-done
			cancel()
			for _, f := range r.cleanups {
				f()
			}
			if len(r.skips) > 0 {
				t.Fatalf("skipped: %q", r.skips)
			}
			return r.failures
		}
	}
	t.Fatalf("there is no check %s/%s", group, name)
	return nil
}

// mutant is a good decider with one thing broken.
type mutant struct {
	name   string
	breaks func(d *decider) // called for each handle
	// fails is the checks that must fail, and what each failure must say
	fails map[string]string
}

// decider is a handle whose methods a mutant may replace.
type decider struct {
	*memory.Decider
	t       testing.TB
	read    func(ctx context.Context) (*leaderelection.RaceEntry, error)
	write   func(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error)
	changes func(ctx context.Context, yield func(*leaderelection.RaceEntry, error) bool)
}

func (d *decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.read(ctx)
}

func (d *decider) WriteEntry(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.write(ctx, e)
}

func (d *decider) Changes(ctx context.Context) feedSeq {
	return func(yield func(*leaderelection.RaceEntry, error) bool) { d.changes(ctx, yield) }
}

// newDecider returns a handle with nothing broken.
func newDecider(t testing.TB, m *memory.Decider) *decider {
	d := &decider{Decider: m, t: t}
	d.read = m.ReadCurrent
	d.write = m.WriteEntry
	d.changes = func(ctx context.Context, yield func(*leaderelection.RaceEntry, error) bool) { m.Changes(ctx)(yield) }
	return d
}

func (m mutant) newElection(t testing.TB) func() leaderelection.RaceDecider {
	election := memory.NewDecider()
	return func() leaderelection.RaceDecider {
		d := newDecider(t, election.Handle())
		m.breaks(d)
		return d
	}
}

func (m mutant) test(t *testing.T) {
	for check, says := range m.fails {
		synctest.Test(t, func(t *testing.T) {
			got := failuresWith(t, Options{Patience: 200 * time.Millisecond}, check, m.newElection)
			if len(got) == 0 {
				t.Errorf("%s passes", check)
			} else if all := strings.Join(got, "\n"); !strings.Contains(all, says) {
				t.Errorf("%s fails, but does not say %q:\n%s", check, says, all)
			}
		})
	}
}

// TestBrokenDecidersFail breaks a good decider in one way after another, and
// shows that the suite tells.
func TestBrokenDecidersFail(t *testing.T) {
	for _, m := range append(append(brokenReads(), brokenWrites()...), brokenFeeds()...) {
		t.Run(m.name, func(t *testing.T) {
			m.test(t)
		})
	}
}

// The recorder and the wrapper themselves break nothing; nor is a store refused
// whose versions are hashes of the content.
func TestUnbrokenDecidersPass(t *testing.T) {
	for name, m := range map[string]mutant{
		"wrapper":      {breaks: func(*decider) {}},
		"content hash": {breaks: contentHash(func(*entry) {})},
		"feed that tells of what is not committed": {breaks: func(d *decider) {
			d.Inject(memory.Always(memory.Fault{Foretold: time.Millisecond}).On(memory.Write))
		}},
	} {
		for _, g := range allGroups() {
			for _, c := range g.checks {
				if g.name == "Processes" || g.name == "Proxy" {
					continue // which memory cannot take part in
				}
				synctest.Test(t, func(t *testing.T) {
					if got := failuresWith(t, Options{Patience: 10 * time.Second}, g.name+"/"+c.name, m.newElection); len(got) > 0 {
						t.Errorf("%s: %s/%s: %q", name, g.name, c.name, got)
					}
				})
			}
		}
	}
}

// Each check has a mutant that it catches.
func TestEveryCheckIsProved(t *testing.T) {
	proved := map[string]bool{"Processes/NoUpdateIsLost": true, "Proxy/IsNotBelieved": true} // by tests of their own
	for _, m := range append(append(append(brokenReads(), brokenWrites()...), brokenFeeds()...), leakyFeed()) {
		for check := range m.fails {
			proved[check] = true
		}
	}
	for _, g := range allGroups() {
		for _, c := range g.checks {
			if name := g.name + "/" + c.name; !proved[name] {
				t.Errorf("no broken decider shows that %s can fail", name)
			}
		}
	}
}

// Run itself fails the test it is given: seen from outside, in a process of its
// own.
func TestRunFailsTheTest(t *testing.T) {
	const key = "DECIDERTEST_RUN_BROKEN"
	if os.Getenv(key) != "" {
		lastWriterWins := mutant{breaks: writes(always, overwritten)}
		Run(t, lastWriterWins.newElection, &Options{Patience: time.Second})
		return
	}
	out, err := fleet.Again(t, "^TestRunFailsTheTest$/^(Race|WriteEntry)$", key+"=1").CombinedOutput()
	if _, failed := err.(*exec.ExitError); !failed {
		t.Fatalf("it did not fail: %v\n%s", err, out)
	}
	for _, want := range []string{
		"--- FAIL: TestRunFailsTheTest/Race/OneUpdateWins", "of 20 racers won",
		"--- FAIL: TestRunFailsTheTest/WriteEntry/StaleTokenLosesAndLeavesNoTrace",
		"--- PASS: TestRunFailsTheTest/WriteEntry/NilTokenCreates ",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("its output does not say %q:\n%s", want, out)
		}
	}
}

func TestMain(m *testing.M) {
	Main(func(_ context.Context, address string) (leaderelection.RaceDecider, error) {
		if strings.HasPrefix(address, "nowhere:") {
			return nil, errors.New("there is no such place")
		}
		return onFile(address), nil
	})
	os.Exit(m.Run())
}

// trusting is a decider on a file that checks under a lock of the process, and then writes over
// whatever is there.
type trusting struct{ *file.Decider }

var processLock sync.Mutex

func (d trusting) WriteEntry(ctx context.Context, e *entry) (token, error) {
	processLock.Lock()
	defer processLock.Unlock()
	now, err := d.ReadCurrent(ctx)
	if err != nil {
		return nil, err
	}
	if e.Token != nil && e.Token != now.Token || e.Token == nil && now.ElectionNumber > 0 {
		return nil, leaderelection.ErrLostRace
	}
	pause()
	for {
		next, err := d.Decider.WriteEntry(ctx, with(now.Token, e))
		if !errors.Is(err, leaderelection.ErrLostRace) {
			return next, err
		}
		if now, err = d.ReadCurrent(ctx); err != nil {
			return nil, err
		}
	}
}

// onFile is the decider at an address, which says whether it is trusting.
func onFile(address string) leaderelection.RaceDecider {
	kind, path, _ := strings.Cut(address, ":")
	d := file.NewDecider(path, nil)
	if kind == "trusts" {
		return trusting{d}
	}
	return d
}

// A check under a lock of the process holds nobody back in another.
func TestProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: real processes and disks")
	}
	for kind, says := range map[string]string{"locks": "", "trusts": "older record", "nowhere": "there is no such place"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // one waits for its patience to end
			testProcesses(t, kind, says)
		})
	}
}

func testProcesses(t *testing.T, kind, says string) {
	address := kind + ":" + filepath.Join(t.TempDir(), "election")
	o := Options{Patience: 10 * time.Second, Address: func(leaderelection.RaceDecider) string { return address }}
	if kind == "locks" {
		o.Patience = time.Minute
	}
	got := failuresWith(t, o, "Processes/NoUpdateIsLost", func(testing.TB) func() leaderelection.RaceDecider {
		return func() leaderelection.RaceDecider { return onFile(address) }
	})
	if all := strings.Join(got, "\n"); (len(got) > 0) != (says != "") || !strings.Contains(all, says) {
		t.Errorf("%s: %s; want %q", kind, all, says)
	}
}

// FailuresWith is for the tests outside of this package.
var FailuresWith = failuresWith
