package leotel_test

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/leotel"
)

// exported returns the names of all series and labels as Prometheus gets them,
// once everything has happened.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	telemetry, err := leotel.New(&leotel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter))}).Candidate("orders", le.Config{LeaderID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer telemetry.Close()
	h := telemetry.Trace()
	h.News(le.RaceEntry{LeaderID: "a", ElectionNumber: 1, TermExpiry: time.Now()})
	h.StatusChanged(le.StatusChange{To: le.Leading, Number: 1})
	h.StoreOp(le.StoreOp{Kind: le.OpExtend, Start: time.Now(), CommitTS: time.Now()})
	h.StoreOp(le.StoreOp{Kind: le.OpExtend, Err: errors.New("no")})
	h.Extended(le.ViewExtended{Number: 1, Extension: 1, Expiry: time.Now()})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
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
	dashboard, err := os.ReadFile("../../../../leotel/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(dashboard) {
		t.Error("dashboard.json is not JSON")
	}
	alerts, err := os.ReadFile("../../../../leotel/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
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
