package leotel_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/leotel"
	"github.com/c8e606e4/leaderelection/leprom"
	"github.com/c8e606e4/leaderelection/shard"
)

// What leprom tells Prometheus and what leotel tells it through OpenTelemetry's exporter
// are the same series, by name, help text, type, labels and buckets: so one dashboard and
// one set of alerts are for both.
func TestLepromAndLeotelAreTheSame(t *testing.T) {
	plain, otel := prometheus.NewRegistry(), prometheus.NewRegistry()
	metrics := leprom.New(nil)
	plain.MustRegister(metrics)
	candidate, err := metrics.Candidate("orders", leaderelection.Config{LeaderID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	exporter, err := otelprom.New(otelprom.WithRegisterer(otel), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		t.Fatal(err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	telemetry := leotel.New(&leotel.Options{MeterProvider: provider})
	election, err := telemetry.Candidate("orders", leaderelection.Config{LeaderID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer election.Close()
	member, err := metrics.Member("orders", shard.Config{MemberID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	group, err := telemetry.Member("orders", shard.Config{MemberID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	for _, h := range []*shard.Trace{member.Trace(), group.Trace()} {
		h.Owns(shard.Owns{})
		h.LetGo(shard.LetGo{Owned: new(shard.Owned), Cause: shard.ErrMoved})
	}
	for _, h := range []*leaderelection.Trace{candidate.Trace(), election.Trace()} {
		h.News(leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, TermExpiry: time.Now()})
		h.StatusChanged(leaderelection.StatusChange{To: leaderelection.Leading, Number: 1})
		for _, err := range []error{nil, errors.New("no"), leaderelection.ErrLostRace} {
			h.StoreOp(leaderelection.StoreOp{Kind: leaderelection.OpExtend, Start: time.Now(), CommitTS: time.Now(), Err: err})
		}
		h.Extended(leaderelection.ViewExtended{Number: 1, Extension: 1, Expiry: time.Now(), Remaining: time.Second})
		h.Feed(leaderelection.FeedEvent{})
		h.ClockSkew(&leaderelection.ClockSkewError{})
		h.DuplicateID(leaderelection.RaceEntry{})
	}
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

// shape is each series that a registry has, without its value.
func shape(t *testing.T, r *prometheus.Registry) map[string]bool {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
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
			all[fmt.Sprintf("%s %s {%s} [%s] %s", f.GetName(), f.GetType(), strings.Join(labels, " "), strings.Join(bounds, " "), f.GetHelp())] = true
		}
	}
	return all
}
