package leaderelection_test

import (
	"context"
	"errors"
	"go/build"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 20: T >= 2 S, nothing negative, and all faults are reported at once.
func TestRule20ConfigFaults(t *testing.T) {
	elected := func(context.Context, *le.TimeView) {}
	good := le.Config{Decider: memory.NewDecider(), LeaderID: "a", OnElected: elected}
	for _, c := range []struct {
		name  string
		spoil func(*le.Config)
		want  []string
	}{
		{"everything", func(c *le.Config) {
			*c = le.Config{TermLength: -1, MaxClockSkew: -2, PollInterval: -3, DrainTimeout: -4}
		},
			[]string{"Decider", "LeaderID", "OnElected", "TermLength is -1ns", "MaxClockSkew is -2ns", "PollInterval is -3ns", "DrainTimeout is -4ns"}},
		{"skew over half a term", func(c *le.Config) { c.TermLength, c.MaxClockSkew = 10*time.Second, 5*time.Second+1 },
			[]string{"TermLength is 10s", "twice MaxClockSkew", "5.000000001s"}},
		{"skew over half the default term", func(c *le.Config) { c.MaxClockSkew = 8 * time.Second },
			[]string{"TermLength is 15s", "8s"}},
		{"reserved id", func(c *le.Config) { c.LeaderID = le.AnySuccessor }, []string{"LeaderID", "reserved"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := good
			c.spoil(&cfg)
			_, err := cfg.Start(t.Context())
			if err == nil {
				t.Fatal("taken")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error lacks %q: %v", w, err)
				}
			}
			if err2 := cfg.Acquire(t.Context()); err2 == nil || err2.Error() != err.Error() {
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

func TestWatchConfigFaults(t *testing.T) {
	err := le.WatchConfig{MaxClockSkew: -1, PollInterval: -1}.Watch(t.Context(), nil)
	for _, w := range []string{"Decider", "callback", "MaxClockSkew", "PollInterval"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error lacks %q: %v", w, err)
		}
	}
}

// The root package and clocks import nothing but the standard library.
func TestStandardLibraryOnly(t *testing.T) {
	const module = "github.com/c8e606e4/leaderelection"
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".", "./clocks").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, path := range strings.Fields(string(out)) {
		if path != module && path != module+"/clocks" {
			t.Errorf("the root package or clocks links %s", path)
		}
	}
	if p, err := build.ImportDir(".", 0); err != nil || len(p.Imports) == 0 {
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
