package leprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/c8e606e4/leaderelection/internal/measure"
)

// The labels.
const (
	electionLabel   = "leaderelection_election"
	candidateLabel  = "leaderelection_candidate"
	transitionLabel = "leaderelection_transition"
	causeLabel      = "leaderelection_cause"
	operationLabel  = "leaderelection_operation"
	outcomeLabel    = "leaderelection_outcome"
	eventLabel      = "leaderelection_event"
	errorLabel      = "error_type"
)

// The bounds of the histograms, as in leotel: a store answers in a millisecond to some
// seconds; a view's reserve is up to a term, of seconds to a minute, and up to the whole
// view.
var (
	durations = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
	reserves  = []float64{.1, .2, .5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 30, 60}
	ratios    = []float64{.05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .75, 1}
)

// vectors are what is counted when it happens.
type vectors struct {
	transitions, extensionFailures, operations                           *prometheus.CounterVec
	feedEvents, clockSkews, duplicates                                   *prometheus.CounterVec
	extensionDuration, extensionReserve, reserveRatio, operationDuration *prometheus.HistogramVec
}

func newVectors(o Options) vectors {
	histogram := func(name, help string, bounds []float64, more ...string) *prometheus.HistogramVec {
		if o.NoHistograms {
			return nil
		}
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "leaderelection", Name: name, Help: help, Buckets: bounds}, append([]string{electionLabel, candidateLabel}, more...))
	}
	return vectors{
		transitions:       counter("transitions_total", "Leaderships of this candidate that began or ended, by cause.", transitionLabel, causeLabel),
		extensionFailures: counter("extension_failures_total", "Extensions of the lease that the store did not confirm in time.", errorLabel),
		operations:        counter("store_operations_total", "Calls of the store, by kind and outcome.", operationLabel, outcomeLabel),
		feedEvents:        counter("feed_events_total", "Starts and failures of the store's feed of changes.", eventLabel),
		clockSkews:        counter("clock_skews_total", "How often this machine's clock was newly proved to be off by more than MaxClockSkew."),
		duplicates:        counter("duplicate_ids_total", "Leaderships of another process under this candidate's LeaderID."),
		extensionDuration: histogram("extension_duration_seconds", "How long the store took to confirm an extension of the lease.", durations),
		extensionReserve:  histogram("extension_reserve_seconds", "What was left of the view when an extension was confirmed.", reserves),
		reserveRatio:      histogram("extension_reserve_ratio", "What was left of the view when an extension was confirmed, as a share of its whole span.", ratios),
		operationDuration: histogram("store_operation_duration_seconds", "How long calls of the store took, or until they were given up, by kind and outcome.", durations, operationLabel, outcomeLabel),
	}
}

// counter makes a counter of candidates, or of members.
func counter(name, help string, more ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "leaderelection", Name: name, Help: help}, append([]string{electionLabel, candidateLabel}, more...))
}

// vector is a CounterVec or a HistogramVec.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

func (v *vectors) all() []vector {
	all := []vector{v.transitions, v.extensionFailures, v.operations, v.feedEvents, v.clockSkews, v.duplicates}
	for _, h := range []*prometheus.HistogramVec{v.extensionDuration, v.extensionReserve, v.reserveRatio, v.operationDuration} {
		if h != nil {
			all = append(all, h)
		}
	}
	return all
}

// begin makes a candidate's series of counters: one that is born at 1 has no increase
// that a rate could see.
func (v *vectors) begin(n names) {
	v.transitions.WithLabelValues(n.election, n.candidate, measure.Elected.What, measure.Elected.Cause)
	for _, cause := range measure.Causes() {
		v.transitions.WithLabelValues(n.election, n.candidate, "ended", cause)
	}
	v.clockSkews.WithLabelValues(n.election, n.candidate)
	v.duplicates.WithLabelValues(n.election, n.candidate)
}

// forget takes all series of n away.
func (v *vectors) forget(n names) {
	for _, each := range v.all() {
		each.DeletePartialMatch(prometheus.Labels{electionLabel: n.election, candidateLabel: n.candidate})
	}
}

// gauge is what is worked out when it is asked for.
type gauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*measure.Snapshot) (value float64, known bool)
}

func newGauge(kind prometheus.ValueType, name, help string, value func(*measure.Snapshot) (float64, bool)) gauge {
	return gauge{prometheus.NewDesc("leaderelection_"+name, help, []string{electionLabel, candidateLabel}, nil), kind, value}
}

// gauges are all there are.
var gauges = []gauge{
	newGauge(prometheus.GaugeValue, "is_leader", "1 while this candidate leads, by its view, else 0.", func(s *measure.Snapshot) (float64, bool) {
		if s.Leading {
			return 1, true
		}
		return 0, true
	}),
	newGauge(prometheus.GaugeValue, "fencing_token", "The fencing token of the newest leadership known.", func(s *measure.Snapshot) (float64, bool) {
		return float64(s.Number), true
	}),
	newGauge(prometheus.GaugeValue, "view_remaining_seconds", "How much longer this candidate may act as the leader without a further extension.", func(s *measure.Snapshot) (float64, bool) {
		return s.Remaining.Seconds(), true
	}),
	newGauge(prometheus.GaugeValue, "leaderless_seconds", "For how long nobody has led now, as far as is known here; 0 while somebody does.", func(s *measure.Snapshot) (float64, bool) {
		return s.Leaderless.Seconds(), true
	}),
	newGauge(prometheus.CounterValue, "leaderless_time_seconds_total", "For how long nobody led, as far as was known here.", func(s *measure.Snapshot) (float64, bool) {
		return s.Without.Seconds(), true
	}),
	newGauge(prometheus.GaugeValue, "term_length_seconds", "The term length of the newest record known.", func(s *measure.Snapshot) (float64, bool) {
		return s.Term.Seconds(), true
	}),
	newGauge(prometheus.GaugeValue, "hold_seconds", "Of a job's election: for how long a run keeps others out; 0 if it is none.", func(s *measure.Snapshot) (float64, bool) {
		return s.Hold.Seconds(), true
	}),
	newGauge(prometheus.GaugeValue, "clock_max_skew_seconds", "The MaxClockSkew that was agreed on.", func(s *measure.Snapshot) (float64, bool) {
		return s.Skew.Seconds(), true
	}),
	newGauge(prometheus.GaugeValue, "clock_offset_seconds", "By how much this machine's clock is ahead of the store's, from the last write.", func(s *measure.Snapshot) (float64, bool) {
		return s.Offset.Seconds(), s.OffsetKnown
	}),
	newGauge(prometheus.GaugeValue, "clock_offset_uncertainty_seconds", "By how much the clock's offset may be wrong, either way.", func(s *measure.Snapshot) (float64, bool) {
		return s.Uncertainty.Seconds(), s.OffsetKnown
	}),
}
