/*
Package leprom gives Prometheus an election's metrics, without OpenTelemetry.

	metrics := leprom.New(nil)
	prometheus.MustRegister(metrics)
	...
	election, err := metrics.Candidate("orders", config)
	defer election.Close()
	config.Trace = election.Trace()
	campaign, err := config.Start(ctx)

One Metrics, registered once, is for all elections of a process. [Metrics.Candidate]
takes what it needs to know of a candidate from its Config (LeaderID, term, clock and
skew). Its hooks are a [leaderelection.Trace], which the election does not wait for. If
others want hooks too, leaderelection.JoinTraces makes one of all. Close removes a candidate's
series.

# Metrics

	leaderelection_is_leader                           gauge: 1 while the view lasts and leadership is not being given up
	leaderelection_fencing_token                       gauge: of the newest record known
	leaderelection_transitions_total                   counter, by leaderelection_transition and leaderelection_cause
	leaderelection_view_remaining_seconds              gauge: what is left of the view; 0 while not leading
	leaderelection_leaderless_seconds                  gauge: for how long nobody has led now, as far as is known here
	leaderelection_leaderless_time_seconds_total       counter: for how long nobody led, in all
	leaderelection_job                                 gauge: 1 for a job's election (Run, Once, StartHeld), which nobody leads between the runs; else 0
	leaderelection_hold_seconds                        gauge: of a job's election (OnceOptions.Hold), for how long a run keeps others out; else 0
	leaderelection_term_length_seconds                 gauge: of the newest record known; before that, the Config's
	leaderelection_clock_max_skew_seconds              gauge: the MaxClockSkew that was agreed on
	leaderelection_clock_offset_seconds                gauge: by how much this machine's clock is ahead of the store's
	leaderelection_clock_offset_uncertainty_seconds    gauge: by how much that may be wrong, either way
	leaderelection_clock_skews_total                   counter: how often the clock was newly proved to be off by more
	leaderelection_extension_duration_seconds          histogram: of each extension that the store confirmed
	leaderelection_extension_reserve_seconds           histogram: what was left of the view when that came
	leaderelection_extension_reserve_ratio             histogram: the same, as a share of the view's whole span
	leaderelection_extension_failures_total            counter, by error_type
	leaderelection_store_operations_total              counter, by leaderelection_operation and leaderelection_outcome
	leaderelection_store_operation_duration_seconds    histogram, by the same
	leaderelection_feed_events_total                   counter, by leaderelection_event
	leaderelection_duplicate_ids_total                 counter: leaderships of another process under this LeaderID

and for members of package shard's groups, by [Metrics.Member]:

	leaderelection_shards_owned                        gauge: shards that this member owns
	leaderelection_shards_placed                       gauge: shards of the group with an owner, by the newest assignment known here
	leaderelection_shards_unowned                      gauge: those without one
	leaderelection_shards_moving                       gauge: those whose owner is asked to let them go
	leaderelection_shards_failing                      gauge: those with which a member has failed within the last hour
	leaderelection_shards_assignment_version           gauge: the version of that assignment
	leaderelection_shards_unowned_time_seconds_total   counter: how long shards had no owner, added up over all shards
	leaderelection_shards_taken_total                  counter: shards that this member came to own; the sum over members counts moves
	leaderelection_shards_let_go_total                 counter, by leaderelection_cause: moved, set_back, or why the session ended

A shard whose owner has died counts as placed until its session has ended on record.

All have leaderelection_election and leaderelection_candidate. Names, labels and their
values are those that package leotel has behind OpenTelemetry's Prometheus exporter (see
there for the values and for what they mean). So programs with the one and with the other
may be candidates of one election, and its alerts.yaml and dashboard.json fit both. That
is why the labels have a prefix.

The clock's offset is there on stores that say when they wrote, after the first write,
and if clocks are compared at all (not with the ClockPolicy SharedClock or Unsynchronized).

# Cardinality

A candidate has at most 500 series, histogram buckets counted, and about 200 in practice,
so 1,000 elections have more than 100,000. Without histograms ([Options].NoHistograms)
it has at most 44, and about 30 in practice. Each label has a few values, which are words
of this package. Names of elections and candidates are yours. A candidate that has a new
LeaderID at each start (a pod's name) leaves its old series in Prometheus' storage, not in
the process.

Experimental: the API of this package may change in any minor version, even after v1.
*/
package leprom

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/measure"
	"github.com/c8e606e4/leaderelection/shard"
)

// Metrics are those of all elections of a process: a prometheus.Collector, to be
// registered once. Its methods may be called by any number of goroutines at once.
type Metrics struct {
	in      measure.Instruments[*prometheus.CounterVec, *prometheus.HistogramVec]
	groupIn measure.GroupInstruments[*prometheus.CounterVec]

	elections, groups *series
}

var _ prometheus.Collector = (*Metrics)(nil)

// Options are for [New]. The zero value is right for most.
type Options struct {
	// NoHistograms leaves the histograms out: for processes with hundreds of elections. Of what
	// remains a candidate has about 30 series, and 44 at most. The alert ElectionLeaseRunningLow needs
	// leaderelection_extension_reserve_ratio, and is silent then.
	NoHistograms bool
}

// New returns Metrics of no election.
func New(opts *Options) *Metrics {
	m := &Metrics{elections: newSeries(measure.Snapshot{}.Gauges()), groups: newSeries(measure.GroupSnapshot{}.Gauges())}
	histogram := m.elections.histogram
	if opts != nil && opts.NoHistograms {
		histogram = func([]float64, string, string, string, ...string) *prometheus.HistogramVec { return nil }
	}
	m.in = measure.NewInstruments(m.elections.counter, histogram)
	m.groupIn = measure.NewGroupInstruments(m.groups.counter)
	return m
}

// Election is what is measured of one candidate, or observer, of an election.
type Election struct {
	subject *subject
	trace   *leaderelection.Trace
}

// Candidate measures the candidate that config describes, in the election of that
// name: give what it returns to the campaign, by Config.Trace, and close it when the
// campaign is over. It refuses a candidate that is being measured already: the election's
// name and the LeaderID tell the series of one process apart.
func (m *Metrics) Candidate(election string, config leaderelection.Config) (*Election, error) {
	return m.add(election, config.LeaderID, config)
}

// Observer is Candidate for a process that follows the election, with Watch or a
// router. Its series have no leaderelection_candidate; so a process can have one
// observer of an election measured.
func (m *Metrics) Observer(election string, watch leaderelection.WatchConfig) (*Election, error) {
	return m.add(election, "", leaderelection.Config{Clock: watch.Clock, MaxClockSkew: watch.MaxClockSkew, ClockPolicy: watch.ClockPolicy})
}

func (m *Metrics) add(election, candidate string, config leaderelection.Config) (*Election, error) {
	state := measure.NewElection(config)
	s, err := m.elections.add("candidate", "election", names{election, candidate}, func() []measure.Gauge { return state.Now().Gauges() })
	if err != nil {
		return nil, err
	}
	r := measure.Recorder[*prometheus.CounterVec, *prometheus.HistogramVec]{State: state, Instruments: m.in, Count: s.count, Observe: s.observe}
	r.Begin(candidate != "")
	return &Election{s, r.Trace()}, nil
}

// Trace returns the hooks, for Config.Trace or WatchConfig.Trace.
func (e *Election) Trace() *leaderelection.Trace { return e.trace }

// Close takes the Election's series away. What its campaign still tells is ignored.
// It may be called more than once.
func (e *Election) Close() { e.subject.close() }

// Group is what is measured of one member of a group of package shard.
type Group struct {
	subject *subject
	trace   *shard.Trace
}

// Member measures the member that config describes, in the group of that name: give what it
// returns to the member, by Config.ShardTrace, and close it when the member is done. It
// refuses a member that is being measured already. Labels are those of a candidate: the
// group is the election, and the MemberID the candidate.
func (m *Metrics) Member(group string, config shard.Config) (*Group, error) {
	state := measure.NewGroup(config.Clock)
	s, err := m.groups.add("member", "group", names{group, config.MemberID}, func() []measure.Gauge { return state.Now().Gauges() })
	if err != nil {
		return nil, err
	}
	r := measure.GroupRecorder[*prometheus.CounterVec]{State: state, GroupInstruments: m.groupIn, Count: s.count}
	r.Begin()
	return &Group{s, r.Trace()}, nil
}

// Trace returns the hooks, for Config.ShardTrace.
func (g *Group) Trace() *shard.Trace { return g.trace }

// Close takes the Group's series away. What its member still tells is ignored. It may be
// called more than once.
func (g *Group) Close() { g.subject.close() }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, s := range []*series{m.elections, m.groups} {
		for _, v := range s.vectors {
			v.Describe(to)
		}
		for _, desc := range s.gauges {
			to <- desc
		}
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, s := range []*series{m.elections, m.groups} {
		for _, v := range s.vectors {
			v.Collect(to)
		}
		s.mu.Lock()
		all := slices.Collect(maps.Values(s.subjects))
		s.mu.Unlock()
		for _, one := range all {
			one.collect(to)
		}
	}
}

// The labels that all metrics have.
const (
	electionLabel  = "leaderelection_election"
	candidateLabel = "leaderelection_candidate"
)

// names are the values of these two labels.
type names struct{ election, candidate string }

// series are the metrics of all candidates and observers, or of all members.
type series struct {
	vectors []vector           // of what is counted as things happen
	gauges  []*prometheus.Desc // in the order of package measure

	mu       sync.Mutex
	subjects map[names]*subject
}

// vector is a CounterVec or a HistogramVec.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

func newSeries(gauges []measure.Gauge) *series {
	s := &series{subjects: map[names]*subject{}}
	for _, g := range gauges {
		s.gauges = append(s.gauges, prometheus.NewDesc(nameOf(g.Name, g.Unit, g.Total), g.Help, labelsOf(), nil))
	}
	return s
}

func (s *series) counter(name, unit, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: nameOf(name, unit, true), Help: help}, labelsOf(labels...))
	s.vectors = append(s.vectors, c)
	return c
}

func (s *series) histogram(bounds []float64, name, unit, help string, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: nameOf(name, unit, false), Help: help, Buckets: bounds}, labelsOf(labels...))
	s.vectors = append(s.vectors, h)
	return h
}

// subject is one candidate, observer or member that is measured.
type subject struct {
	names
	of  *series
	now func() []measure.Gauge

	mu     sync.Mutex
	closed bool
}

func (s *series) add(what, where string, n names, now func() []measure.Gauge) (*subject, error) {
	n.election, n.candidate = strings.ToValidUTF8(n.election, "\uFFFD"), strings.ToValidUTF8(n.candidate, "\uFFFD")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subjects[n] != nil {
		return nil, fmt.Errorf("leprom: %s %q of %s %q is being measured already: close that one first, or give each %[3]s a name", what, n.candidate, where, n.election)
	}
	s.subjects[n] = &subject{names: n, of: s, now: now}
	return s.subjects[n], nil
}

// close takes all its series away.
func (s *subject) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, v := range s.of.vectors {
		v.DeletePartialMatch(prometheus.Labels{electionLabel: s.election, candidateLabel: s.candidate})
	}
	s.of.mu.Lock()
	delete(s.of.subjects, s.names)
	s.of.mu.Unlock()
}

// values are those of all labels.
func (s *subject) values(more []string) []string {
	return append([]string{s.election, s.candidate}, more...)
}

// count counts, while s is not closed.
func (s *subject) count(v *prometheus.CounterVec, n int, more ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		v.WithLabelValues(s.values(more)...).Add(float64(n))
	}
}

func (s *subject) observe(v *prometheus.HistogramVec, value float64, more ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && v != nil {
		v.WithLabelValues(s.values(more)...).Observe(value)
	}
}

// collect reports how s stands.
func (s *subject) collect(to chan<- prometheus.Metric) {
	for i, g := range s.now() {
		kind := prometheus.GaugeValue
		if g.Total {
			kind = prometheus.CounterValue
		}
		if g.Known {
			to <- prometheus.MustNewConstMetric(s.of.gauges[i], kind, g.Float(), s.election, s.candidate)
		}
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
