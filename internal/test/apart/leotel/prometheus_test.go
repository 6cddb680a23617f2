package leotel_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/leotel"
	"github.com/c8e606e4/leaderelection/adapters/leprom"
	"github.com/c8e606e4/leaderelection/internal/measure/measuretest"
	"github.com/c8e606e4/leaderelection/shard"
)

// What leprom tells Prometheus and what leotel tells it through OpenTelemetry's exporter
// are the same series, by name, help text, type, labels and buckets, and have the same values, unless they
// are times: so one dashboard and one set of alerts are for both.
func TestLepromAndLeotelAreTheSame(t *testing.T) {
	plain, otel := prometheus.NewRegistry(), prometheus.NewRegistry()
	metrics := leprom.New(nil)
	plain.MustRegister(metrics)
	candidate := must(metrics.Candidate("orders", leaderelection.Config{LeaderID: "a"}))(t)
	exporter := must(otelprom.New(otelprom.WithRegisterer(otel), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo()))(t)
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	telemetry := leotel.New(&leotel.Options{MeterProvider: provider})
	election := must(telemetry.Candidate("orders", leaderelection.Config{LeaderID: "a"}))(t)
	defer election.Close()
	member := must(metrics.Member("orders", shard.Config{MemberID: "a"}))(t)
	group := must(telemetry.Member("orders", shard.Config{MemberID: "a"}))(t)
	defer group.Close()
	for _, h := range []*shard.Trace{member.Trace(), group.Trace()} {
		h.Owns(shard.Owns{})
		h.LetGo(shard.LetGo{Owned: new(shard.Owned), Cause: shard.ErrMoved})
	}
	measuretest.Everything(candidate.Trace())
	measuretest.Everything(election.Trace())
	one, other := shape(t, plain), shape(t, otel)
	if !maps.Equal(one, other) || len(one) < 40 {
		for _, s := range slices.Sorted(maps.Keys(one)) {
			if !other[s] {
				t.Errorf("leprom only: %s", s)
			}
		}
		for _, s := range slices.Sorted(maps.Keys(other)) {
			if !one[s] {
				t.Errorf("leotel only: %s", s)
			}
		}
	}
}

// shape is each series that a registry has, with its value if that is no time.
func shape(t *testing.T, r *prometheus.Registry) map[string]bool {
	t.Helper()
	families := must(r.Gather())(t)
	all := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels, bounds []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(labels)
			for _, b := range m.GetHistogram().GetBucket() {
				bounds = append(bounds, fmt.Sprint(b.GetUpperBound()))
			}
			value := fmt.Sprint(m.GetCounter().GetValue()+m.GetGauge().GetValue(), m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum())
			if m.GetHistogram() == nil && strings.Contains(f.GetName(), "_seconds") {
				value = "a time"
			}
			all[fmt.Sprintf("%s %s {%s} [%s] %s: %s", f.GetName(), f.GetType(), strings.Join(labels, " "), strings.Join(bounds, " "), f.GetHelp(), value)] = true
		}
	}
	return all
}

// exported returns the names of all series and labels as Prometheus gets them,
// once everything has happened.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter := must(otelprom.New(otelprom.WithRegisterer(registry)))(t)
	telemetry := must(leotel.New(&leotel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter))}).Candidate("orders", leaderelection.Config{LeaderID: "a"}))(t)
	defer telemetry.Close()
	measuretest.Everything(telemetry.Trace())
	families := must(registry.Gather())(t)
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
		for _, m := range f.GetMetric() {
			if m.Histogram != nil {
				names[f.GetName()+"_bucket"] = true
			}
			for _, l := range m.GetLabel() {
				names[l.GetName()] = true
			}
		}
	}
	return names
}

var word = regexp.MustCompile(`\b(leaderelection_[a-z_]+|error_type)\b`)

// Dashboard and alerts speak of nothing that is not exported, and of everything
// that is.
func TestDashboardAndAlerts(t *testing.T) {
	names := exported(t)
	dashboard := must(os.ReadFile("../../../../adapters/leotel/dashboard.json"))(t)
	if !json.Valid(dashboard) {
		t.Error("dashboard.json is not JSON")
	}
	alerts := must(os.ReadFile("../../../../adapters/leotel/alerts.yaml"))(t)
	for file, text := range map[string]string{"dashboard.json": string(dashboard), "alerts.yaml": string(alerts)} {
		found := word.FindAllString(text, -1)
		if len(found) < 5 {
			t.Errorf("%s names only %v", file, found)
		}
		for _, name := range found {
			if !names[name] && !names[name+"_bucket"] {
				t.Errorf("%s names %s, which is not exported", file, name)
			}
		}
	}
	for name := range names {
		series := strings.HasPrefix(name, "leaderelection_") && !strings.Contains("leaderelection_election leaderelection_candidate leaderelection_operation_duration", name)
		if series && !strings.Contains(name, "store_operation_duration") && !strings.Contains(string(dashboard), name) && !strings.HasSuffix(name, "_seconds") {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
	if n := strings.Count(string(alerts), "- alert:"); n != 7 {
		t.Errorf("%d alerts", n)
	}
}
