// Package alertstest runs leotel's alert rules as Prometheus does. It is a module of
// its own because it links Prometheus.
package alertstest

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const (
	file  = "../../leotel/alerts.yaml"
	every = 15 * time.Second // of scrapes and evaluations
	end   = 30 * time.Minute
)

// firings are the rules that fire, and when each first does.
type firings map[string]time.Duration

// scenarios are series in Prometheus' notation, a sample every 15 s: "1x40" is a 1 for
// ten minutes, "_" a scrape that found nothing.
var scenarios = []struct {
	name, series string
	want         firings
}{
	{"healthy", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_is_leader{C="b"} 0x120
		leaderelection_transitions_total{C="a",leaderelection_transition="ended",leaderelection_cause="expired"} 0x120
		leaderelection_extension_reserve_seconds_bucket{C="a",le="4"} 0x120
		leaderelection_extension_reserve_seconds_bucket{C="a",le="8"} 0+1x120
		leaderelection_extension_reserve_seconds_bucket{C="a",le="+Inf"} 0+1x120
		leaderelection_clock_offset_seconds{C="a"} 0.1x120
		leaderelection_clock_offset_uncertainty_seconds{C="a"} 0.05x120`, nil},
	{"the leader crashed, with a stale marker", `
		leaderelection_is_leader{C="a"} 1x40 stale
		leaderelection_is_leader{C="b"} 0x41 1x80`, nil},
	{"the leader crashed, without one", `
		leaderelection_is_leader{C="a"} 1x40
		leaderelection_is_leader{C="b"} 0x40 1x80`, nil},
	{"nobody leads", `
		leaderelection_is_leader{C="a"} 1x40 0x80
		leaderelection_is_leader{C="b"} 0x120`, firings{"ElectionWithoutLeader": 11*time.Minute + every}},
	{"all are dead, with stale markers", `
		leaderelection_is_leader{C="a"} 1x40 stale
		leaderelection_is_leader{C="b"} 0x40 stale`, firings{"ElectionWithoutLeader": 12 * time.Minute}},
	{"all are dead, without", `
		leaderelection_is_leader{C="a"} 1x40
		leaderelection_is_leader{C="b"} 0x40`, firings{"ElectionWithoutLeader": 12 * time.Minute}},
	{"two lead", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_is_leader{C="b"} 0x39 1x80`, firings{"ElectionWithSeveralLeaders": 11 * time.Minute}},
	{"a hand-over is counted twice", `
		leaderelection_is_leader{C="a"} 1x40 0x79
		leaderelection_is_leader{C="b"} 0x39 1x80`, nil},
	{"leases run low", `
		leaderelection_extension_reserve_seconds_bucket{C="a",le="2"} 0x120
		leaderelection_extension_reserve_seconds_bucket{C="a",le="4"} 0+1x120
		leaderelection_extension_reserve_seconds_bucket{C="a",le="8"} 0+1x120
		leaderelection_extension_reserve_seconds_bucket{C="a",le="+Inf"} 0+1x120`, firings{"ElectionLeaseRunningLow": 10*time.Minute + every}},
	{"a new process loses leadership four times", `
		leaderelection_transitions_total{C="a",leaderelection_transition="ended",leaderelection_cause="expired"} _x40 0 1 2 3 4x70`,
		firings{"ElectionUnstable": 11 * time.Minute}},
	{"leadership is lost three times", `
		leaderelection_transitions_total{C="a",leaderelection_transition="ended",leaderelection_cause="ousted"} 5x40 6 7 8x77`, nil},
	{"four deployments", `
		leaderelection_transitions_total{C="a",leaderelection_transition="ended",leaderelection_cause="shutdown"} 0x40 1 2 3 4x76`, nil},
	{"a clock is ahead", `
		leaderelection_clock_offset_seconds{C="a"} 0.1x40 0.9x79
		leaderelection_clock_offset_uncertainty_seconds{C="a"} 0.1x120`, firings{"ElectionClockOff": 15*time.Minute + every}},
	{"a clock is behind", `
		leaderelection_clock_offset_seconds{C="a"} 0.1x40 -0.9x79
		leaderelection_clock_offset_uncertainty_seconds{C="a"} 0.1x120`, firings{"ElectionClockOff": 15*time.Minute + every}},
	{"a clock's offset is uncertain", `
		leaderelection_clock_offset_seconds{C="a"} 0.9x120
		leaderelection_clock_offset_uncertainty_seconds{C="a"} 0.6x120`, nil},
}

// fired returns what of the rules in path fires on the series.
func fired(t *testing.T, path, series string) firings {
	t.Helper()
	series = strings.ReplaceAll(series, `C="`, `leaderelection_election="orders",leaderelection_candidate="`)
	data, err := promqltest.NewLazyLoader("load 15s"+series+"\n", promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(data.QueryEngine(), data.Storage()),
		Appendable: data.Storage(), Queryable: data.Storage(), Context: t.Context(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger:     promslog.NewNopLogger(),
		Parser:     parser.NewParser(parser.Options{}),
	})
	groups, errs := manager.LoadGroups(every, labels.EmptyLabels(), "", nil, false, path)
	if errs != nil {
		t.Fatal(errs)
	}
	first := firings{}
	for at := time.Duration(0); at <= end; at += every {
		now := time.Unix(0, 0).UTC().Add(at)
		data.WithSamplesTill(now, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		})
		for _, g := range groups {
			g.Eval(t.Context(), now)
			for _, r := range g.AlertingRules() {
				if r.LastError() != nil {
					t.Fatalf("%s: %v", r.Name(), r.LastError())
				}
				if _, known := first[r.Name()]; !known && r.State() == rules.StateFiring {
					first[r.Name()] = at
				}
			}
		}
	}
	return first
}

// Each rule fires in its case, at the promised time, and in no other.
func TestAlerts(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			if got := fired(t, file, s.series); !maps.Equal(got, s.want) {
				t.Errorf("fired: %v, want %v", got, s.want)
			}
		})
		for name := range s.want {
			seen[name] = true
		}
	}
	if len(seen) != 5 {
		t.Errorf("only %v have a case in which they fire", seen)
	}
}

// The scenarios notice each rule that is broken.
func TestBrokenAlerts(t *testing.T) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct{ old, new string }{
		{"present_over_time(leaderelection_is_leader[1d])", "present_over_time(leaderelection_is_leader[1m])"},
		{"leaderelection_is_leader[1m])) < 1", "leaderelection_is_leader[1m])) < 0"},
		{"leaderelection_is_leader[30s]", "leaderelection_is_leader[5m]"},
		{"[30s])) > 1", "[30s])) > 2"},
		{"[10m]))) < 4", "[10m]))) < 2"},
		{"|unhealthy|", "|shutdown|"},
		{"[30m])) > 3.5", "[30m])) > 3"},
		{"[30m])) > 3.5", "[30m])) > 4.5"},
		{"abs(leaderelection_clock_offset_seconds)", "leaderelection_clock_offset_seconds"},
		{"- leaderelection_clock_offset_uncertainty_seconds", ""},
		{"for: 5m", "for: 10m"},
	} {
		t.Run(m.new, func(t *testing.T) {
			broken := strings.Replace(string(text), m.old, m.new, 1)
			if broken == string(text) {
				t.Fatalf("%s does not have %q", file, m.old)
			}
			path := filepath.Join(t.TempDir(), "alerts.yaml")
			if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, s := range scenarios {
				if !maps.Equal(fired(t, path, s.series), s.want) {
					return
				}
			}
			t.Error("no scenario notices it")
		})
	}
}
