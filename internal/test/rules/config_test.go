//go:build go1.25

package rules

import (
	"context"
	"errors"
	"go/build"
	"math"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 20: T >= 2 S, nothing negative, and all faults are reported at once.
func TestRule20ConfigFaults(t *testing.T) {
	elected := func(context.Context, *le.TimeView) {}
	good := le.Config{Decider: memory.NewDecider(), LeaderID: "a", OnElected: elected}
	for _, c := range []struct {
		name  string
		spoil func(*config)
		want  []string
	}{
		{"everything", func(c *config) {
			*c = config{le.Config{TermLength: -1, MaxClockSkew: -2, PollInterval: -3, DrainTimeout: -4}, -5}
		},
			[]string{"Decider", "LeaderID", "TermLength is -1ns", "MaxClockSkew is -2ns", "PollInterval is -3ns", "DrainTimeout is -4ns", "Hold is -5ns"}},
		{"skew over half a term", func(c *config) { c.TermLength, c.MaxClockSkew = 10*time.Second, 5*time.Second+1 },
			[]string{"TermLength is 10s", "twice MaxClockSkew", "5.000000001s"}},
		{"skew over half the default term", func(c *config) { c.MaxClockSkew = 8 * time.Second },
			[]string{"TermLength is 15s", "8s"}},
		{"term below the bound", func(c *config) { c.TermLength = 15 }, []string{"TermLength is 15ns", "at least 100ms", "nanoseconds"}},
		{"term above the bound", func(c *config) { c.TermLength = le.MaxTermLength + 1 }, []string{"TermLength is 8760h0m0.000000001s", "a year"}},
		{"term below twice the default skew", func(c *config) { c.TermLength = time.Second },
			[]string{"TermLength is 1s", "MaxClockSkew", "1s when it is not set", "SharedClock"}},
		{"one clock, and a skew", func(c *config) { c.ClockPolicy, c.MaxClockSkew = le.SharedClock, 1 }, []string{"MaxClockSkew is 1ns", "SharedClock"}},
		{"no monotonic clock", func(c *config) { c.ClockPolicy, c.Clock = le.Unsynchronized, wallClock{} }, []string{"Unsynchronized", "wallClock", "clocks.Monotonic"}},
		{"skew without a unit", func(c *config) { c.MaxClockSkew = 15 }, []string{"MaxClockSkew is 15ns", "nanoseconds"}},
		{"durations without a unit", func(c *config) { c.PollInterval, c.DrainTimeout, c.Hold = 5, 30, 3600 },
			[]string{"PollInterval is 5ns", "DrainTimeout is 30ns", "Hold is 3.6µs", "a bare number counts nanoseconds, say 3600*time.Second"}},
		{"id that is no text", func(c *config) { c.LeaderID = "a\xff" }, []string{"LeaderID", "UTF-8"}},
		{"extending too rarely", func(c *config) { c.ExtendEvery = 7*time.Second + 1 }, []string{"ExtendEvery is 7.000000001s", "to 7s"}},
		{"extending all the time", func(c *config) { c.ExtendEvery = 1 }, []string{"ExtendEvery is 1ns", "750ms"}},
		{"addresses that are no text", func(c *config) { c.HostPort = []string{"a:1", "b\xff"} }, []string{"HostPort 1", "UTF-8"}},
		{"a listener's address of all interfaces", func(c *config) { c.HostPort = []string{"a:1", "[::]:8081", "0.0.0.0:1", ":1"} }, []string{"HostPort 1", "HostPort 2", "HostPort 3", "SelfHostPorts"}},
		{"an address without a port", func(c *config) { c.HostPort = []string{"a:1", "10.0.0.1"} }, []string{"HostPort 1", `"10.0.0.1"`, "host:port"}},
		{"no such policy", func(c *config) { c.ClockPolicy = 9 }, []string{"ClockPolicy is 9", "SharedClock"}},
		{"too much to tell", func(c *config) { c.ConnectionParams = make([]byte, 200<<10) }, []string{"ConnectionParams", "196608 are allowed"}},
		{"id of a page", func(c *config) { c.LeaderID = strings.Repeat("a", 1025) }, []string{"LeaderID", "has 1025 bytes"}},
		{"reserved id", func(c *config) { c.LeaderID = le.AnySuccessor }, []string{"LeaderID", "reserved"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config{Config: good}
			c.spoil(&cfg)
			_, err := cfg.StartHeld(t.Context(), cfg.Hold)
			if !errors.Is(err, le.ErrConfig) {
				t.Fatalf("taken, or not an ErrConfig: %v", err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error lacks %q: %v", w, err)
				}
			}
			if err2 := cfg.Acquire(t.Context()); cfg.Hold == 0 && (err2 == nil || err2.Error() != err.Error()) {
				t.Errorf("Acquire says %v, Start %v", err2, err)
			}
		})
	}
	ok := good
	ok.TermLength, ok.MaxClockSkew = 10*time.Second, 5*time.Second
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ok.Acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("T = 2 S: %v", err)
	}
	good.OnElected = nil
	if err := good.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "job") {
		t.Errorf("Run without a job: %v", err)
	}
	good.OnElected = elected
	if err := good.Run(t.Context(), func(context.Context, *le.TimeView) error { return nil }); err == nil || !strings.Contains(err.Error(), "OnElected") {
		t.Errorf("Run with OnElected: %v", err)
	}
}

// wallClock is a clock of another library whose times have no monotonic reading.
type wallClock struct{ clocks.SystemClock }

func (wallClock) Now() time.Time { return time.Now().Round(0) }

// A MaxClockSkew that was forgotten is a second, also where the store's stamps are
// compared with the clock; only who says that all share one clock has no margin.
func TestRule20ForgottenSkewIsASecond(t *testing.T) {
	for name, c := range map[string]struct {
		adjust func(*config)
		margin time.Duration
	}{
		"forgotten":    {func(c *config) { c.MaxClockSkew = 0 }, time.Second},
		"shared clock": {func(c *config) { c.MaxClockSkew, c.ClockPolicy = 0, le.SharedClock }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d, a := leader(t, c.adjust)
				if got := d.Entry().TermExpiry.Sub(a.leadership(t, 0).view.Get()); got != c.margin {
					t.Errorf("the view ends %v before the term, want %v", got, c.margin)
				}
				b := join(t, d, "b", c.adjust)
				a.store.Inject(memory.Fail(errors.New("cut off")))
				over := d.Entry().TermExpiry
				for !b.View().ValueInFuture() {
					sleep(time.Millisecond)
				}
				near(t, "the challenger", time.Since(over), c.margin+spread/2, spread/2+time.Millisecond)
			})
			bubble(t, func(t *testing.T) {
				a := join(t, memory.NewDecider(), "a", c.adjust, on(clocks.NewOffset(nil, 3*time.Second)))
				sleep(T)
				if led := a.count() > 0; led != (c.margin == 0) {
					t.Errorf("with a clock 3 s ahead of the store's it led: %v", led)
				}
			})
		})
	}
}

func TestWatchConfigFaults(t *testing.T) {
	err := le.WatchConfig{ClockPolicy: le.SharedClock, MaxClockSkew: 1}.Watch(t.Context(), func(context.Context, le.RaceEntry) {})
	if err == nil || !strings.Contains(err.Error(), "SharedClock") {
		t.Errorf("a shared clock and a skew: %v", err)
	}
	err = le.WatchConfig{MaxClockSkew: 1, PollInterval: 5}.Watch(t.Context(), func(context.Context, le.RaceEntry) {})
	if err == nil || !strings.Contains(err.Error(), "PollInterval is 5ns: a bare number") || !strings.Contains(err.Error(), "MaxClockSkew is 1ns: a bare number") {
		t.Errorf("durations without a unit: %v", err)
	}
	err = le.WatchConfig{MaxClockSkew: -1, PollInterval: -1}.Watch(t.Context(), nil)
	for _, w := range []string{"Decider", "callback", "MaxClockSkew", "PollInterval"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error lacks %q: %v", w, err)
		}
	}
}

// The root package and clocks import nothing but the standard library.
func TestStandardLibraryOnly(t *testing.T) {
	const module = "github.com/c8e606e4/leaderelection"
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "../../..", "../../../clocks").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, path := range strings.Fields(string(out)) {
		if path != module && path != module+"/clocks" && !strings.HasPrefix(path, module+"/internal/") {
			t.Errorf("the root package or clocks links %s", path)
		}
	}
	if p, err := build.ImportDir("../../..", 0); err != nil || len(p.Imports) == 0 {
		t.Fatalf("no imports found: %v", err)
	}
}

func TestSelfHostPorts(t *testing.T) {
	if _, err := le.SelfHostPorts(""); err == nil {
		t.Error("an empty port was taken")
	}
	got, err := le.SelfHostPorts("8080")
	if err != nil {
		t.Logf("this machine has no global address: %v", err)
		return
	}
	for _, hp := range got {
		host, port, err := net.SplitHostPort(hp)
		if err != nil || port != "8080" || !net.ParseIP(host).IsGlobalUnicast() {
			t.Errorf("%q is no global unicast address with port 8080 (%v)", hp, err)
		}
	}
}

// A Priority that a record cannot keep on every machine is refused.
func TestRule20Priority(t *testing.T) {
	for _, p := range []int64{math.MinInt32 - 1, math.MaxInt32 + 1} {
		if int64(int(p)) != p {
			continue // a machine of 32 bits has no such int
		}
		_, err := le.Config{Decider: memory.NewDecider(), LeaderID: "a", Priority: int(p)}.Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), "Priority is "+strconv.FormatInt(p, 10)) {
			t.Errorf("%d: %v", p, err)
		}
	}
}

// TryAcquire refuses
// what Start does, and asks the store nothing.
func TestRule20TryAcquireRefuses(t *testing.T) {
	d := memory.NewDecider()
	d.Inject(func(memory.Op) memory.Fault { t.Error("the store was asked"); return memory.Fault{} })
	if c, err := (le.Config{Decider: d, LeaderID: "", TermLength: -1}).TryAcquire(t.Context()); c != nil || err == nil || !strings.Contains(err.Error(), "LeaderID is empty") {
		t.Errorf("%v, %v", c, err)
	}
}
