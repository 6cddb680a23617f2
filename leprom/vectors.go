package leprom

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c8e606e4/leaderelection/internal/measure"
)

// The labels that all metrics have.
const (
	electionLabel  = "leaderelection_election"
	candidateLabel = "leaderelection_candidate"
)

// vectors are the metrics of candidates, or of members, that are counted as things happen.
type vectors []vector

// vector is a CounterVec or a HistogramVec.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

func (v *vectors) counter(name, unit, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: nameOf(name, unit, true), Help: help}, labelsOf(labels...))
	*v = append(*v, c)
	return c
}

func (v *vectors) histogram(bounds []float64, name, unit, help string, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: nameOf(name, unit, false), Help: help, Buckets: bounds}, labelsOf(labels...))
	*v = append(*v, h)
	return h
}

// forget takes all series of n away.
func (v vectors) forget(n names) {
	for _, each := range v {
		each.DeletePartialMatch(prometheus.Labels{electionLabel: n.election, candidateLabel: n.candidate})
	}
}

// nameOf makes of a name in package measure what OpenTelemetry's exporter makes of it.
func nameOf(name, unit string, total bool) string {
	name = "leaderelection_" + strings.ReplaceAll(name, ".", "_")
	if unit == "s" {
		name += "_seconds"
	}
	if total {
		name += "_total"
	}
	return name
}

func labelsOf(more ...string) []string {
	all := []string{electionLabel, candidateLabel}
	for _, label := range more {
		all = append(all, strings.ReplaceAll(label, ".", "_"))
	}
	return all
}

// gauges and groupGauges describe the gauges of package measure, in its order.
var gauges, groupGauges = described(measure.Snapshot{}.Gauges()), described(measure.GroupSnapshot{}.Gauges())

func described(all []measure.Gauge) (descs []*prometheus.Desc) {
	for _, g := range all {
		descs = append(descs, prometheus.NewDesc(nameOf(g.Name, g.Unit, g.Total), g.Help, labelsOf(), nil))
	}
	return descs
}

// collect reports how n stands.
func (n names) collect(to chan<- prometheus.Metric, descs []*prometheus.Desc, now []measure.Gauge) {
	for i, g := range now {
		kind := prometheus.GaugeValue
		if g.Total {
			kind = prometheus.CounterValue
		}
		if g.Known {
			to <- prometheus.MustNewConstMetric(descs[i], kind, g.Float(), n.election, n.candidate)
		}
	}
}
