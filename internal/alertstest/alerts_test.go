// Package alertstest runs the alert rules of leprom and leotel as Prometheus does. It is a module of
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
		leaderelection_leaderless_seconds{C="a"} 0x120
		leaderelection_leaderless_seconds{C="b"} 0x120
		leaderelection_transitions_total{C="a",leaderelection_transition="ended",leaderelection_cause="expired"} 0x120
		leaderelection_extension_reserve_ratio_bucket{C="a",le="0.45"} 0x120
		leaderelection_extension_reserve_ratio_bucket{C="a",le="0.5"} 0+1x120
		leaderelection_extension_reserve_ratio_bucket{C="a",le="+Inf"} 0+1x120
		leaderelection_clock_offset_seconds{C="a"} 0.1x120
		leaderelection_clock_offset_uncertainty_seconds{C="a"} 0.05x120` + termAndSkew("15", "1"), nil},
	{"the leader crashed for good, with a stale marker", `
		leaderelection_is_leader{C="a"} 1x40 stale
		leaderelection_is_leader{C="b"} 0x41 1x80
		leaderelection_leaderless_seconds{C="a"} 0x40 stale
		leaderelection_leaderless_seconds{C="b"} 0x40 2 0x79` + termAndSkew("15", "1"), firings{"ElectionStandbyLost": 26 * time.Minute}},
	{"the leader crashed for good, without one", `
		leaderelection_is_leader{C="a"} 1x40
		leaderelection_is_leader{C="b"} 0x40 1x80
		leaderelection_leaderless_seconds{C="a"} 0x40
		leaderelection_leaderless_seconds{C="b"} 0x40 2 0x79` + termAndSkew("15", "1"), firings{"ElectionStandbyLost": 26 * time.Minute}},
	{"nobody leads", `
		leaderelection_is_leader{C="a"} 1x40 0x80
		leaderelection_is_leader{C="b"} 0x120
		leaderelection_leaderless_seconds{C="a"} 0x40 12+15x80
		leaderelection_leaderless_seconds{C="b"} 0x40 14+15x80
		leaderelection_hold_seconds{C="b"} 0x120` + termAndSkew("15", "1"), firings{"ElectionWithoutLeader": 11*time.Minute + every}},
	{"one candidate does not reach the store", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_leaderless_seconds{C="a"} 0x120
		leaderelection_leaderless_seconds{C="b"} 0+15x120` + termAndSkew("15", "1"), nil},
	{"nobody leads for a fail-over of five minutes' terms", `
		leaderelection_leaderless_seconds{C="a"} 0x40 0+15x40 0x39` + termAndSkew("300", "1"), nil},
	{"nobody leads for two of them", `
		leaderelection_leaderless_seconds{C="a"} 0x40 0+15x80` + termAndSkew("300", "1"), firings{"ElectionWithoutLeader": 21 * time.Minute}},
	{"all are dead, with stale markers", `
		leaderelection_is_leader{C="a"} 1x40 stale
		leaderelection_is_leader{C="b"} 0x40 stale`, firings{"ElectionWithoutLeader": 11*time.Minute + 2*every}},
	{"all are dead, without", `
		leaderelection_is_leader{C="a"} 1x40
		leaderelection_is_leader{C="b"} 0x40`, firings{"ElectionWithoutLeader": 11*time.Minute + 2*every}},
	{"all are away for a minute", `
		leaderelection_is_leader{C="a"} 1x40 _x4 1x75`, nil},
	{"two namespaces have an election of that name", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_is_leader{D="a"} 1x120`, nil},
	{"nobody leads in one of two namespaces", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_leaderless_seconds{C="a"} 0x120
		leaderelection_is_leader{D="a"} 1x40 0x80
		leaderelection_leaderless_seconds{D="a"} 0x40 12+15x80
		leaderelection_term_length_seconds{D="a"} 15x120
		leaderelection_clock_max_skew_seconds{D="a"} 1x120` + termAndSkew("15", "1"), firings{"ElectionWithoutLeader": 11*time.Minute + every}},
	{"leaders die unseen", `
		leaderelection_is_leader{C="a"} 0x120
		leaderelection_is_leader{C="b"} 0x120
		leaderelection_fencing_token{C="a"} 0 0 1700000000+0.25x118
		leaderelection_fencing_token{C="b"} 0 1700000000+0.25x119`, firings{"ElectionUnstable": 8*time.Minute + 3*every}},
	{"a leader resigns each minute", `
		leaderelection_is_leader{C="a"} 0x120
		leaderelection_fencing_token{C="a"} 1700000000+0.25x120
		leaderelection_transitions_total{C="a",leaderelection_transition="ended",leaderelection_cause="resigned"} 0+0.25x120`, nil},
	{"a candidate knows an old number", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_is_leader{C="b"} 0x120
		leaderelection_fencing_token{C="a"} 1700000100x120
		leaderelection_fencing_token{C="b"} 1700000000x120`, nil},
	{"one deployment of three", `
		leaderelection_is_leader{C="a"} 0x120
		leaderelection_is_leader{C="b"} 0x120
		leaderelection_is_leader{C="c"} 0x120
		leaderelection_fencing_token{C="a"} 7x40 8 9 10 11x76`, nil},
	{"a standby is lost", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_is_leader{C="b"} 0x20
		leaderelection_leaderless_seconds{C="a"} 0x120
		leaderelection_leaderless_seconds{C="b"} 0x20` + termAndSkew("15", "1"), firings{"ElectionStandbyLost": 20*time.Minute + 4*every}},
	{"a standby is lost, and an observer is none", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_is_leader{C="b"} 0x20
		leaderelection_leaderless_seconds{C="a"} 0x120
		leaderelection_leaderless_seconds{C=""} 0x120
		leaderelection_leaderless_seconds{C="b"} 0x20` + termAndSkew("15", "1"), firings{"ElectionStandbyLost": 20*time.Minute + 4*every}},
	{"a standby does not reach the store", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_is_leader{C="b"} 0x120
		leaderelection_leaderless_seconds{C="a"} 0x120
		leaderelection_leaderless_seconds{C="b"} 0x20 15+15x99` + termAndSkew("15", "1"), firings{"ElectionStandbyLost": 20*time.Minute + every}},
	{"one candidate, as ever, and an observer", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_is_leader{C=""} 0x120
		leaderelection_leaderless_seconds{C="a"} 0x120
		leaderelection_leaderless_seconds{C=""} 0x120` + termAndSkew("15", "1"), nil},
	{"a job runs each five minutes", `
		leaderelection_is_leader{C=""} 0x120
		leaderelection_hold_seconds{C=""} 150x120
		leaderelection_leaderless_seconds{C=""} 0+15x19 0+15x19 0+15x19 0+15x19 0+15x19 0+15x19
		leaderelection_is_leader{C="a"} 1 _x119
		leaderelection_fencing_token{C=""} 1700000000x19 1700000001x19 1700000002x19 1700000003x19 1700000004x19 1700000005x19` + termAndSkew("15", "1"), nil},
	{"a job's candidates have all ended", `
		leaderelection_is_leader{C="a"} 1x40
		leaderelection_is_leader{C="b"} 0x40
		leaderelection_leaderless_seconds{C="a"} 0x40
		leaderelection_leaderless_seconds{C="b"} 0x40
		leaderelection_hold_seconds{C="a"} 300x40`, nil},
	{"a job's candidate waits for the other's end", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_is_leader{C="b"} 0x20
		leaderelection_leaderless_seconds{C="a"} 0x120
		leaderelection_leaderless_seconds{C="b"} 0x20
		leaderelection_hold_seconds{C="a"} 3600x120` + termAndSkew("15", "1"), nil},
	{"a job is elected each minute", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_hold_seconds{C="a"} 30x120
		leaderelection_fencing_token{C="a"} 1700000000+0.25x120`, nil},
	{"a job is missed", `
		leaderelection_is_leader{C=""} 0x120
		leaderelection_hold_seconds{C=""} 150x60 100x60
		leaderelection_leaderless_seconds{C=""} 0x40 0+15x80` + termAndSkew("15", "1"), firings{"ElectionJobMissed": 10*time.Minute + 450*time.Second + 2*every + time.Minute}},
	{"two lead", `
		leaderelection_is_leader{C="a"} 1x120
		leaderelection_is_leader{C="b"} 0x39 1x80`, firings{"ElectionWithSeveralLeaders": 11 * time.Minute}},
	{"a hand-over is counted twice", `
		leaderelection_is_leader{C="a"} 1x40 0x79
		leaderelection_is_leader{C="b"} 0x39 1x80`, nil},
	{"leases run low", `
		leaderelection_extension_reserve_ratio_bucket{C="a",le="0.2"} 0x120
		leaderelection_extension_reserve_ratio_bucket{C="a",le="0.3"} 0+1x120
		leaderelection_extension_reserve_ratio_bucket{C="a",le="0.4"} 0+1x120
		leaderelection_extension_reserve_ratio_bucket{C="a",le="+Inf"} 0+1x120`, firings{"ElectionLeaseRunningLow": 10*time.Minute + every}},
	{"a new process loses leadership four times", `
		leaderelection_transitions_total{C="a",leaderelection_transition="ended",leaderelection_cause="expired"} _x40 0 1 2 3 4x70`,
		firings{"ElectionUnstable": 11 * time.Minute}},
	{"leadership is lost three times", `
		leaderelection_transitions_total{C="a",leaderelection_transition="ended",leaderelection_cause="ousted"} 5x40 6 7 8x77`, nil},
	{"four deployments", `
		leaderelection_transitions_total{C="a",leaderelection_transition="ended",leaderelection_cause="shutdown"} 0x40 1 2 3 4x76`, nil},
	{"a clock is ahead", `
		leaderelection_clock_offset_seconds{C="a"} 0.1x40 0.9x79
		leaderelection_clock_offset_uncertainty_seconds{C="a"} 0.1x120` + termAndSkew("15", "1"), firings{"ElectionClockOff": 15*time.Minute + every}},
	{"a clock is behind", `
		leaderelection_clock_offset_seconds{C="a"} 0.1x40 -0.9x79
		leaderelection_clock_offset_uncertainty_seconds{C="a"} 0.1x120` + termAndSkew("15", "1"), firings{"ElectionClockOff": 15*time.Minute + every}},
	{"a clock's offset is uncertain", `
		leaderelection_clock_offset_seconds{C="a"} 0.9x120
		leaderelection_clock_offset_uncertainty_seconds{C="a"} 0.6x120` + termAndSkew("15", "1"), nil},
	{"a clock is 80 ms ahead where 100 are allowed", `
		leaderelection_clock_offset_seconds{C="a"} 0x40 0.08x79
		leaderelection_clock_offset_uncertainty_seconds{C="a"} 0.01x120` + termAndSkew("15", "0.1"), firings{"ElectionClockOff": 15*time.Minute + every}},
}

// termAndSkew are the gauges of both candidates.
func termAndSkew(term, skew string) string {
	return `
		leaderelection_term_length_seconds{C="a"} ` + term + `x120
		leaderelection_term_length_seconds{C="b"} ` + term + `x120
		leaderelection_clock_max_skew_seconds{C="a"} ` + skew + `x120
		leaderelection_clock_max_skew_seconds{C="b"} ` + skew + `x120`
}

// fired returns what of the rules in path fires on the series.
func fired(t *testing.T, path, series string) firings {
	t.Helper()
	for label, namespace := range map[string]string{`C="`: "shop", `D="`: "staging"} {
		series = strings.ReplaceAll(series, "{"+label, `{namespace="`+namespace+`",leaderelection_election="orders",leaderelection_candidate="`)
	}
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
	if len(seen) != 7 {
		t.Errorf("only %v have a case in which they fire", seen)
	}
}

// alone returns the first rule that has a text, by name and as a file of its own: to judge all of
// them takes long.
func alone(rules, text string) (name, file string) {
	const begin = "      - alert: "
	all := strings.Split(rules, begin)
	for _, rule := range all[1:] {
		if strings.Contains(rule, text) {
			name, _, _ := strings.Cut(rule, "\n")
			return name, all[0] + begin + rule
		}
	}
	return "", ""
}

// The scenarios notice each rule that is broken.
func TestBrokenAlerts(t *testing.T) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct{ old, new string }{
		{"present_over_time(leaderelection_is_leader[1d])", "present_over_time(leaderelection_is_leader[1m])"},
		{"> 2 * max by", "> max by"},
		{"> 2 * max by", "> 4 * max by"},
		{"min by (cluster, namespace, leaderelection_election) (last", "max by (cluster, namespace, leaderelection_election) (last"},
		{"last_over_time(leaderelection_term_length_seconds[1m])", "15"},
		{"for: 30s", "for: 0s"},
		{"leaderelection_is_leader[30s]", "leaderelection_is_leader[5m]"},
		{"[30s])) > 1", "[30s])) > 2"},
		{"[10m]))) < 0.3", "[10m]))) < 0.2"},
		{"[10m]))) < 0.3", "[10m]))) < 0.5"},
		{"|unhealthy|", "|shutdown|"},
		{"[30m])) > 3.5", "[30m])) > 3"},
		{"[30m])) > 3.5", "[30m])) > 4.5"},
		{"0.5 * leaderelection_clock_max_skew_seconds", "0.5"},
		{"0.5 * leaderelection_clock_max_skew_seconds", "leaderelection_clock_max_skew_seconds"},
		{"abs(leaderelection_clock_offset_seconds)", "leaderelection_clock_offset_seconds"},
		{"- leaderelection_clock_offset_uncertainty_seconds", ""},
		{"for: 5m", "for: 10m"},
		{"sum by (cluster, namespace, leaderelection_election) (last", "sum by (leaderelection_election) (last"},
		{"> 0)[30m:1m]", ")[30m:1m]"},
		{`"resigned|shutdown"`, `"none"`},
		{"> 3.5 + 2 *", "> 3.5 - 2 *"},
		{"- min_over_time(max by", "- min_over_time(min by"},
		{"or 0 * max by", "or 100 + 0 * max by"},
		{"== 0) < 2", ">= 0) < 2"},
		{"[1d:5m]) > 1", "[1d:5m]) > 0"},
		{"for: 15m", "for: 5m"},
		{`leaderelection_leaderless_seconds{leaderelection_candidate!=""}`, "leaderelection_leaderless_seconds"},
		{"> 3 * max by", "> 2 * max by"},
		{"> 3 * max by", "> 4 * max by"},
		{"hold_seconds[7d]", "hold_seconds[1m]"},
		{"(max_over_time(leaderelection_hold_seconds[7d]) > 0)", "(max_over_time(leaderelection_hold_seconds[7d]))"},
		{"for: 1m\n        labels: {severity: critical}\n        annotations:\n          summary: \"{{ $labels.leaderelection_election }}: the job", "for: 2m\n        labels: {severity: critical}\n        annotations:\n          summary: \"{{ $labels.leaderelection_election }}: the job"},
		{"leaderelection_is_leader[1m]))))\n          unless max by (cluster, namespace, leaderelection_election) (max_over_time(leaderelection_hold_seconds[1d])) > 0", "leaderelection_is_leader[1m]))))"},
		{"[30m:1m]))\n          unless max by (cluster, namespace, leaderelection_election) (max_over_time(leaderelection_hold_seconds[1d])) > 0", "[30m:1m]))"},
		{"[1d:5m]) > 1\n          unless max by (cluster, namespace, leaderelection_election) (max_over_time(leaderelection_hold_seconds[1d])) > 0", "[1d:5m]) > 1"},
	} {
		t.Run(m.new, func(t *testing.T) {
			name, broken := alone(string(text), m.old)
			if name == "" {
				t.Fatalf("%s does not have %q", file, m.old)
			}
			broken = strings.Replace(broken, m.old, m.new, 1)
			path := filepath.Join(t.TempDir(), "alerts.yaml")
			if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, s := range scenarios {
				at, fires := s.want[name]
				if got, fired := fired(t, path, s.series)[name]; fired != fires || got != at {
					return
				}
			}
			t.Error("no scenario notices it")
		})
	}
}
