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

	vectors, groupVectors vectors // what in and groupIn hold

	mu        sync.Mutex
	elections map[names]*Election
	groups    map[names]*Group
}

var _ prometheus.Collector = (*Metrics)(nil)

// names are the two labels that all metrics have.
type names struct{ election, candidate string }

// Options are for [New]. The zero value is right for most.
type Options struct {
	// NoHistograms leaves the histograms out: for processes with hundreds of elections. Of what
	// remains a candidate has about 30 series, and 44 at most. The alert ElectionLeaseRunningLow needs
	// leaderelection_extension_reserve_ratio, and is silent then.
	NoHistograms bool
}

// New returns Metrics of no election.
func New(opts *Options) *Metrics {
	if opts == nil {
		opts = &Options{}
	}
	m := &Metrics{elections: map[names]*Election{}, groups: map[names]*Group{}}
	histogram := m.vectors.histogram
	if opts.NoHistograms {
		histogram = func([]float64, string, string, string, ...string) *prometheus.HistogramVec { return nil }
	}
	m.in = measure.NewInstruments(m.vectors.counter, histogram)
	m.groupIn = measure.NewGroupInstruments(m.groupVectors.counter)
	return m
}

// Election is what is measured of one candidate, or observer, of an election.
type Election struct {
	metrics *Metrics
	names
	state *measure.Election

	mu     sync.Mutex
	closed bool
}

// Candidate measures the candidate that config describes, in the election of that
// name: give what it returns to the campaign, by Config.Trace, and close it when the
// campaign is over. It refuses a candidate that is being measured already: the election's
// name and the LeaderID tell the series of one process apart.
func (m *Metrics) Candidate(election string, config leaderelection.Config) (*Election, error) {
	e, err := m.add(names{election, config.LeaderID}, measure.Options{
		Clock: config.Clock, TermLength: config.TermLength, MaxClockSkew: config.MaxClockSkew,
		ClockPolicy: config.ClockPolicy,
	})
	if err != nil {
		return nil, err
	}
	e.begin()
	return e, nil
}

// begin makes a candidate's series of counters: one that is born at 1 has no increase
// that a rate could see.
func (e *Election) begin() {
	in := &e.metrics.in
	in.Transitions.WithLabelValues(e.election, e.candidate, measure.Elected.What, measure.Elected.Cause)
	for _, cause := range measure.Causes() {
		in.Transitions.WithLabelValues(e.election, e.candidate, "ended", cause)
	}
	in.ClockSkews.WithLabelValues(e.election, e.candidate)
	in.Duplicates.WithLabelValues(e.election, e.candidate)
}

// Observer is Candidate for a process that follows the election, with Watch or a
// router. Its series have no leaderelection_candidate; so a process can have one
// observer of an election measured.
func (m *Metrics) Observer(election string, watch leaderelection.WatchConfig) (*Election, error) {
	return m.add(names{election, ""}, measure.Options{
		Clock: watch.Clock, MaxClockSkew: watch.MaxClockSkew, ClockPolicy: watch.ClockPolicy,
	})
}

func (m *Metrics) add(n names, o measure.Options) (*Election, error) {
	n.election, n.candidate = strings.ToValidUTF8(n.election, "\uFFFD"), strings.ToValidUTF8(n.candidate, "\uFFFD")
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.elections[n] != nil {
		return nil, fmt.Errorf("leprom: candidate %q of election %q is being measured already: close that one first, or give each election a name", n.candidate, n.election)
	}
	e := &Election{metrics: m, names: n, state: measure.New(o)}
	m.elections[n] = e
	for _, event := range measure.FeedEvents() {
		m.in.FeedEvents.WithLabelValues(n.election, n.candidate, event)
	}
	return e, nil
}

// Close takes the Election's series away. What its campaign still tells is ignored.
// It may be called more than once.
func (e *Election) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	e.metrics.vectors.forget(e.names)
	e.metrics.mu.Lock()
	delete(e.metrics.elections, e.names)
	e.metrics.mu.Unlock()
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, v := range slices.Concat(m.vectors, m.groupVectors) {
		v.Describe(to)
	}
	for _, desc := range slices.Concat(gauges, groupGauges) {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, v := range slices.Concat(m.vectors, m.groupVectors) {
		v.Collect(to)
	}
	m.mu.Lock()
	elections, groups := slices.Collect(maps.Values(m.elections)), slices.Collect(maps.Values(m.groups))
	m.mu.Unlock()
	for _, e := range elections {
		e.collect(to, gauges, e.state.Now().Gauges())
	}
	for _, g := range groups {
		g.collect(to, groupGauges, g.state.Now().Gauges())
	}
}

// Trace returns the hooks, for Config.Trace or WatchConfig.Trace.
func (e *Election) Trace() *leaderelection.Trace {
	in := &e.metrics.in
	return &leaderelection.Trace{
		StoreOp:       hook(e, e.storeOp),
		StatusChanged: hook(e, e.statusChanged),
		Extended:      hook(e, e.extended),
		News:          hook(e, func(r leaderelection.RaceEntry) { e.state.News(r) }),
		Feed:          hook(e, func(f leaderelection.FeedEvent) { e.count(in.FeedEvents, measure.FeedEvent(f)) }),
		ClockSkew:     hook(e, func(*leaderelection.ClockSkewError) { e.count(in.ClockSkews) }),
		DuplicateID:   hook(e, func(leaderelection.RaceEntry) { e.count(in.Duplicates) }),
		Job:           hook(e, e.state.Job),
	}
}

// hook is own, while e is not closed.
func hook[E any](e *Election, own func(E)) func(E) {
	return func(x E) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.closed {
			own(x)
		}
	}
}

func (e *Election) storeOp(op leaderelection.StoreOp) {
	in := &e.metrics.in
	e.state.StoreOp(op)
	kind, outcome, took := string(op.Kind), measure.Outcome(op), op.Duration.Seconds()
	e.count(in.Operations, kind, outcome)
	e.observe(in.OperationDuration, took, kind, outcome)
	switch {
	case op.Kind != leaderelection.OpExtend:
	case op.Err == nil:
		e.observe(in.ExtensionDuration, took)
	default:
		e.count(in.ExtensionFailures, measure.ErrorType(op.Err))
	}
}

func (e *Election) statusChanged(c leaderelection.StatusChange) {
	if what, is := e.state.StatusChanged(c); is {
		e.count(e.metrics.in.Transitions, what.What, what.Cause)
	}
}

func (e *Election) extended(x leaderelection.ViewExtended) {
	share, known := e.state.Extended(x)
	if x.Extension > 0 {
		e.observe(e.metrics.in.ExtensionReserve, x.Remaining.Seconds())
	}
	if known {
		e.observe(e.metrics.in.ReserveRatio, share)
	}
}

func (e *Election) count(v *prometheus.CounterVec, more ...string) {
	v.WithLabelValues(append([]string{e.election, e.candidate}, more...)...).Inc()
}

func (e *Election) observe(v *prometheus.HistogramVec, value float64, more ...string) {
	if v != nil {
		v.WithLabelValues(append([]string{e.election, e.candidate}, more...)...).Observe(value)
	}
}

// Group is what is measured of one member of a group of package shard.
type Group struct {
	metrics *Metrics
	names
	state *measure.Group
}

// Member measures the member that config describes, in the group of that name: give what it
// returns to the member, by Config.ShardTrace, and close it when the member is done. It
// refuses a member that is being measured already. Labels are those of a candidate: the
// group is the election, and the MemberID the candidate.
func (m *Metrics) Member(group string, config shard.Config) (*Group, error) {
	n := names{strings.ToValidUTF8(group, "\uFFFD"), strings.ToValidUTF8(config.MemberID, "\uFFFD")}
	g := &Group{metrics: m, names: n, state: measure.NewGroup(config.Clock)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.groups[n] != nil {
		return nil, fmt.Errorf("leprom: member %q of group %q is being measured already: close that one first, or give each group a name", n.candidate, n.election)
	}
	m.groups[n] = g
	m.groupIn.Taken.WithLabelValues(n.election, n.candidate)
	for _, cause := range measure.GroupCauses() {
		m.groupIn.LetGo.WithLabelValues(n.election, n.candidate, cause)
	}
	return g, nil
}

// Trace returns the hooks, for Config.ShardTrace.
func (g *Group) Trace() *shard.Trace {
	return &shard.Trace{
		Owns: func(shard.Owns) {
			g.state.Owns()
			g.count(g.metrics.groupIn.Taken)
		},
		LetGo:      func(e shard.LetGo) { g.count(g.metrics.groupIn.LetGo, g.state.LetGo(e.Cause)) },
		Assignment: g.state.Assignment,
	}
}

// Close takes the Group's series away. What its member still tells is ignored. It may be
// called more than once.
func (g *Group) Close() {
	g.metrics.mu.Lock()
	defer g.metrics.mu.Unlock()
	if g.metrics.groups[g.names] != g {
		return
	}
	delete(g.metrics.groups, g.names)
	g.metrics.groupVectors.forget(g.names)
}

// count counts, while g is not closed.
func (g *Group) count(v *prometheus.CounterVec, more ...string) {
	g.metrics.mu.Lock()
	defer g.metrics.mu.Unlock()
	if g.metrics.groups[g.names] == g {
		v.WithLabelValues(append([]string{g.election, g.candidate}, more...)...).Inc()
	}
}

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
