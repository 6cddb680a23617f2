/*
Package leotel makes OpenTelemetry metrics and spans of what an election's
candidates and observers do.

	telemetry := leotel.New(nil)
	...
	election, err := telemetry.Candidate("orders", config)
	defer election.Close()
	config.Trace = election.Trace()
	campaign, err := config.Start(ctx)

One Telemetry is for all elections of a process. [Telemetry.Candidate] takes what it needs
to know of a candidate from its Config (LeaderID, term, clock and skew). Its hooks are a
[leaderelection.Trace], which the election does not wait for: telemetry that is slow or stuck
delays nothing.

# Metrics

	leaderelection.is_leader                 gauge: 1 while the view lasts and leadership is not being given up
	leaderelection.fencing_token             gauge: of the newest record known
	leaderelection.transitions               counter, by leaderelection.transition and leaderelection.cause
	leaderelection.view.remaining            gauge, s: what is left of the view; 0 while not leading
	leaderelection.leaderless.time           counter, s: for how long nobody led, as far as was known here
	leaderelection.leaderless                gauge, s: for how long nobody has led now, as far as is known here
	leaderelection.term.length               gauge, s: of the newest record known
	leaderelection.job                       gauge: 1 for a job's election (Run, Once, StartHeld), which nobody leads between the runs; else 0
	leaderelection.hold                      gauge, s: of a job's election (OnceOptions.Hold), for how long a run keeps others out; else 0
	leaderelection.clock.max_skew            gauge, s: the MaxClockSkew that was agreed on
	leaderelection.extension.duration        histogram, s: of each extension that the store confirmed
	leaderelection.extension.reserve         histogram, s: what was left of the view when that came
	leaderelection.extension.reserve.ratio   histogram: the same, as a share of the view's whole span
	leaderelection.extension.failures        counter, by error.type
	leaderelection.store.operations          counter, by leaderelection.operation and leaderelection.outcome
	leaderelection.store.operation.duration  histogram, s, by the same
	leaderelection.clock.offset              gauge, s: by how much this machine's clock is ahead of the store's
	leaderelection.clock.offset.uncertainty  gauge, s: by how much that may be wrong, either way
	leaderelection.clock.skews               counter: how often the clock was newly proved to be off by more
	leaderelection.feed.events               counter, by leaderelection.event
	leaderelection.duplicate_ids             counter: leaderships of another process under this candidate's LeaderID

and, by [Telemetry.Member], for a member of a group of package shard (leprom's documentation says what they mean):

	leaderelection.shards.owned, .placed, .unowned, .moving, .failing, .assignment.version   gauges
	leaderelection.shards.unowned.time                                             counter, s
	leaderelection.shards.taken                                                    counter
	leaderelection.shards.let_go                                                   counter, by leaderelection.cause

All have leaderelection.election and leaderelection.candidate, which are
constants of the process. The others take few values each:

	leaderelection.transition  elected, ended
	leaderelection.cause       won; ousted, expired, resigned, unhealthy, clock_skew, shutdown, unknown
	leaderelection.operation   read, acquire, extend, release, request
	leaderelection.outcome     ok, lost_race, abandoned, error
	leaderelection.event       started, failed
	error.type                 lost_race, timeout, canceled, permanent, _OTHER

The clock's offset is known on stores that say when they wrote, and after each
write; its uncertainty is half the time that the write took, and more where the
store counts in whole seconds. It is left out if clocks are not compared
(the ClockPolicy SharedClock or Unsynchronized). Nobody is known to lead from when the record was left
vacant, or its term ran out, until there is another; until a record has been read,
since Candidate or Observer was called.

Without OpenTelemetry, package leprom gives Prometheus the same metrics by the same
names.

# Spans

leaderelection.acquire, leaderelection.extend, leaderelection.release and
leaderelection.request are the store's operations of those kinds: all but reads. A
leaderelection.handover reaches from the
moment in which this process began to give up leadership, or saw the record vacant,
to the next leader's record. A leaderelection.shard.let_go reaches from the moment in which a
member was asked for a shard to the end of the shard's view. They are roots, made when they have ended, with the
times at which they began and ended by the campaign's clock.

# Dashboard and alerts

The package's directory has dashboard.json, for Grafana on a Prometheus data source, and
alerts.yaml, seven Prometheus rules with the reason for each. The rules compare with the gauges
of term and skew, so they fit every election. alerts_test.yaml is for promtool test rules.

Experimental: the API of this package may change in any minor version, even after v1.
*/
package leotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/measure"
	"github.com/c8e606e4/leaderelection/shard"
)

// scope is the instrumentation's name.
const scope = "github.com/c8e606e4/leaderelection/adapters/leotel"

// Telemetry makes the telemetry of all elections of a process. Its methods may be called
// by any number of goroutines at once.
type Telemetry struct {
	meter  metric.Meter
	tracer trace.Tracer
}

// Options are for [New]. The zero value is right for most.
type Options struct {
	// MeterProvider and TracerProvider take the metrics and spans. Nil: the
	// global ones.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
}

// New returns a Telemetry of no election.
func New(opts *Options) *Telemetry {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	return &Telemetry{meter: o.MeterProvider.Meter(scope), tracer: o.TracerProvider.Tracer(scope)}
}

// Election is the telemetry of one candidate, or observer, of an election. Its methods may
// be called by any number of goroutines at once.
type Election struct {
	named
	trace    *leaderelection.Trace
	callback metric.Registration
}

// Candidate returns the telemetry of the candidate that config describes, in the election
// of that name, or what the MeterProvider has against its instruments. Give its Trace to the
// campaign, by Config.Trace, and close it when the campaign is over. The election's name and
// the LeaderID become attributes of everything, and must be few in number.
func (t *Telemetry) Candidate(election string, config leaderelection.Config) (*Election, error) {
	return t.add(election, config.LeaderID, config)
}

// Observer is Candidate for a process that follows the election, with Watch or a router. It
// has no leaderelection.candidate.
func (t *Telemetry) Observer(election string, watch leaderelection.WatchConfig) (*Election, error) {
	return t.add(election, "", leaderelection.Config{Clock: watch.Clock, MaxClockSkew: watch.MaxClockSkew, ClockPolicy: watch.ClockPolicy})
}

func (t *Telemetry) add(election, candidate string, config leaderelection.Config) (*Election, error) {
	e, m, state := &Election{named: t.named(election, candidate)}, &maker{Meter: t.meter}, measure.NewElection(config)
	r := measure.Recorder[counter, histogram]{
		State: state, Instruments: measure.NewInstruments(m.counter, m.histogram), Count: e.count, Observe: e.observe, Handover: e.handover,
	}
	var err error
	e.callback, err = m.observe(func() []measure.Gauge { return state.Now().Gauges() }, e.with())
	if err != nil {
		return nil, err
	}
	r.Begin(candidate != "")
	e.trace = leaderelection.JoinTraces(r.Trace(), &leaderelection.Trace{StoreOp: e.storeOp})
	return e, nil
}

// Close takes back what Candidate or Observer registered: the gauges are not reported any more.
func (e *Election) Close() error { return e.callback.Unregister() }

// Trace returns the hooks, for Config.Trace or WatchConfig.Trace. See
// leaderelection.JoinTraces if others want hooks too.
func (e *Election) Trace() *leaderelection.Trace { return e.trace }

// storeOp makes a span. A read is not worth one.
func (e *Election) storeOp(op leaderelection.StoreOp) {
	if op.Kind != leaderelection.OpRead {
		e.span("leaderelection."+string(op.Kind), op.Start, op.Start.Add(op.Duration), op.Err,
			attribute.Int64("leaderelection.fencing_token", int64(op.Number)))
	}
}

func (e *Election) handover(h measure.Handover) {
	e.span("leaderelection.handover", h.From, h.To, nil,
		attribute.Int64("leaderelection.fencing_token", int64(h.Number)),
		attribute.Int64("leaderelection.previous_fencing_token", int64(h.Previous)),
		attribute.String("leaderelection.cause", h.Cause))
}

// named makes spans and measurements, with the attributes that all telemetry of one candidate has.
type named struct {
	tracer trace.Tracer
	common []attribute.KeyValue
}

func (t *Telemetry) named(election, candidate string) named {
	n := named{tracer: t.tracer, common: []attribute.KeyValue{attribute.String("leaderelection.election", election)}}
	if candidate != "" {
		n.common = append(n.common, attribute.String("leaderelection.candidate", candidate))
	}
	return n
}

// with is the attributes that a measurement has.
func (n named) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, n.common...)...)
}

// labels are the names of an instrument's own attributes.
type labels []string

func (l labels) of(values []string) (all []attribute.KeyValue) {
	for i, v := range values {
		all = append(all, attribute.String(l[i], v))
	}
	return all
}

type counter struct {
	metric.Int64Counter
	labels labels
}

type histogram struct {
	metric.Float64Histogram
	labels labels
}

func (n named) count(c counter, by int, values ...string) {
	c.Add(context.Background(), int64(by), n.with(c.labels.of(values)...))
}

func (n named) observe(h histogram, value float64, values ...string) {
	h.Record(context.Background(), value, n.with(h.labels.of(values)...))
}

// maker makes instruments, and keeps what the meter has against them.
type maker struct {
	metric.Meter
	faults []error
}

func (m *maker) counter(name, unit, help string, names ...string) counter {
	c, err := m.Int64Counter("leaderelection."+name, metric.WithUnit(unit), metric.WithDescription(help))
	m.faults = append(m.faults, err)
	return counter{c, names}
}

func (m *maker) histogram(bounds []float64, name, unit, help string, names ...string) histogram {
	h, err := m.Float64Histogram("leaderelection."+name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(bounds...))
	m.faults = append(m.faults, err)
	return histogram{h, names}
}

// observe makes the instruments of what now returns. Whenever the metrics are collected, they
// report it.
func (m *maker) observe(now func() []measure.Gauge, with metric.MeasurementOption) (metric.Registration, error) {
	var all []metric.Observable
	for _, g := range now() {
		name, unit, help := "leaderelection."+g.Name, metric.WithUnit(g.Unit), metric.WithDescription(g.Help)
		var in metric.Observable
		var err error
		switch {
		case g.Unit != "s":
			in, err = m.Int64ObservableGauge(name, unit, help)
		case g.Total:
			in, err = m.Float64ObservableCounter(name, unit, help)
		default:
			in, err = m.Float64ObservableGauge(name, unit, help)
		}
		all, m.faults = append(all, in), append(m.faults, err)
	}
	if err := errors.Join(m.faults...); err != nil {
		return nil, err
	}
	return m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for i, g := range now() {
			if !g.Known {
				continue
			}
			switch in := all[i].(type) {
			case metric.Int64Observable:
				o.ObserveInt64(in, g.Value, with)
			case metric.Float64Observable:
				o.ObserveFloat64(in, g.Float(), with)
			}
		}
		return nil
	}, all...)
}

// span makes one of what has passed.
func (n named) span(name string, from, to time.Time, err error, more ...attribute.KeyValue) {
	_, span := n.tracer.Start(context.Background(), name, trace.WithNewRoot(), trace.WithTimestamp(from),
		trace.WithSpanKind(kindOf(name)), trace.WithAttributes(append(more, n.common...)...))
	if err != nil {
		span.SetAttributes(attribute.String("error.type", measure.ErrorType(err)))
		span.SetStatus(codes.Error, err.Error())
	}
	span.End(trace.WithTimestamp(to))
}

// kindOf: a store's operation is a call of something else, a hand-over is not, of a shard
// neither.
func kindOf(name string) trace.SpanKind {
	if name == "leaderelection.handover" || name == "leaderelection.shard.let_go" {
		return trace.SpanKindInternal
	}
	return trace.SpanKindClient
}

// Group is the telemetry of one member of a group of package shard. Its methods may be
// called by any number of goroutines at once.
type Group struct {
	named
	trace    *shard.Trace
	callback metric.Registration
}

// Member returns the telemetry of the member that config describes, in the group of that
// name, or what the MeterProvider has against its instruments. Give its Trace to the member,
// by Config.ShardTrace, and close it when the member is done. Attributes are those of a
// candidate: the group is the election, and the MemberID the candidate.
func (t *Telemetry) Member(group string, config shard.Config) (*Group, error) {
	g, m, state := &Group{named: t.named(group, config.MemberID)}, &maker{Meter: t.meter}, measure.NewGroup(config.Clock)
	r := measure.GroupRecorder[counter]{State: state, GroupInstruments: measure.NewGroupInstruments(m.counter), Count: g.count, Gone: g.letGo}
	var err error
	g.callback, err = m.observe(func() []measure.Gauge { return state.Now().Gauges() }, g.with())
	if err != nil {
		return nil, err
	}
	r.Begin()
	g.trace = r.Trace()
	return g, nil
}

// Close takes back what Member registered: the gauges are not reported any more.
func (g *Group) Close() error { return g.callback.Unregister() }

// Trace returns the hooks, for Config.ShardTrace.
func (g *Group) Trace() *shard.Trace { return g.trace }

func (g *Group) letGo(e shard.LetGo, cause string) {
	g.span("leaderelection.shard.let_go", e.Asked, e.Time, nil, attribute.String("leaderelection.cause", cause),
		attribute.String("leaderelection.shard", e.Owned.Name()), attribute.Int64("leaderelection.shard.fencing_token", int64(e.Owned.ElectionNumber())))
}
