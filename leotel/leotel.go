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
const scope = "github.com/c8e606e4/leaderelection/leotel"

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
	state    *measure.Election
	in       measure.Instruments[metric.Int64Counter, metric.Float64Histogram]
	callback metric.Registration
}

// Candidate returns the telemetry of the candidate that config describes, in the election
// of that name, or what the MeterProvider has against its instruments. Give its Trace to the
// campaign, by Config.Trace, and close it when the campaign is over. The election's name and
// the LeaderID become attributes of everything, and must be few in number.
func (t *Telemetry) Candidate(election string, config leaderelection.Config) (*Election, error) {
	e, err := t.add(election, config.LeaderID, measure.Options{
		Clock: config.Clock, TermLength: config.TermLength, MaxClockSkew: config.MaxClockSkew,
		ClockPolicy: config.ClockPolicy,
	})
	if err != nil {
		return nil, err
	}
	e.begin()
	return e, nil
}

// Observer is Candidate for a process that follows the election, with Watch or a router. It
// has no leaderelection.candidate.
func (t *Telemetry) Observer(election string, watch leaderelection.WatchConfig) (*Election, error) {
	return t.add(election, "", measure.Options{
		Clock: watch.Clock, MaxClockSkew: watch.MaxClockSkew, ClockPolicy: watch.ClockPolicy,
	})
}

func (t *Telemetry) add(election, candidate string, o measure.Options) (*Election, error) {
	e, m := &Election{named: t.named(election, candidate), state: measure.New(o)}, &maker{Meter: t.meter}
	e.in = measure.NewInstruments(m.counter, m.histogram)
	var err error
	e.callback, err = m.observe(func() []measure.Gauge { return e.state.Now().Gauges() }, e.with())
	if err != nil {
		return nil, err
	}
	for _, event := range measure.FeedEvents() {
		e.feedEvent(0, event)
	}
	return e, nil
}

// named makes spans, and the attributes that all telemetry of one candidate has.
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

// begin makes the series of counters: one that is born at 1 has no increase that a rate
// could see.
func (e *Election) begin() {
	e.transition(0, measure.Elected)
	for _, cause := range measure.Causes() {
		e.transition(0, measure.Transition{What: "ended", Cause: cause})
	}
	e.in.ClockSkews.Add(context.Background(), 0, e.with())
	e.in.Duplicates.Add(context.Background(), 0, e.with())
}

func (e *Election) transition(n int64, what measure.Transition) {
	e.in.Transitions.Add(context.Background(), n, e.with(attribute.String("leaderelection.transition", what.What), attribute.String("leaderelection.cause", what.Cause)))
}

// Close takes back what Candidate or Observer registered: the gauges are not reported any more.
func (e *Election) Close() error { return e.callback.Unregister() }

// Trace returns the hooks, for Config.Trace or WatchConfig.Trace. See
// leaderelection.JoinTraces if others want hooks too.
func (e *Election) Trace() *leaderelection.Trace {
	return &leaderelection.Trace{
		StoreOp:       e.storeOp,
		StatusChanged: e.statusChanged,
		Extended:      e.extended,
		News:          e.news,
		Feed:          e.feed,
		ClockSkew:     e.clockSkew,
		DuplicateID:   e.duplicate,
		Job:           e.state.Job,
	}
}

// with is the attributes that a measurement has.
func (n named) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, n.common...)...)
}

func (e *Election) storeOp(op leaderelection.StoreOp) {
	ctx := context.Background()
	e.state.StoreOp(op)
	outcome := e.with(attribute.String("leaderelection.operation", string(op.Kind)), attribute.String("leaderelection.outcome", measure.Outcome(op)))
	e.in.Operations.Add(ctx, 1, outcome)
	e.in.OperationDuration.Record(ctx, op.Duration.Seconds(), outcome)
	if op.Kind == leaderelection.OpExtend {
		if op.Err == nil {
			e.in.ExtensionDuration.Record(ctx, op.Duration.Seconds(), e.with())
		} else {
			e.in.ExtensionFailures.Add(ctx, 1, e.with(attribute.String("error.type", measure.ErrorType(op.Err))))
		}
	}
	if op.Kind == leaderelection.OpRead {
		return // not worth a span
	}
	e.span("leaderelection."+string(op.Kind), op.Start, op.Start.Add(op.Duration), op.Err,
		attribute.Int64("leaderelection.fencing_token", int64(op.Number)))
}

func (e *Election) statusChanged(c leaderelection.StatusChange) {
	if what, is := e.state.StatusChanged(c); is {
		e.transition(1, what)
	}
}

func (e *Election) extended(x leaderelection.ViewExtended) {
	share, known := e.state.Extended(x)
	if x.Extension > 0 {
		e.in.ExtensionReserve.Record(context.Background(), x.Remaining.Seconds(), e.with())
	}
	if known {
		e.in.ReserveRatio.Record(context.Background(), share, e.with())
	}
}

func (e *Election) news(r leaderelection.RaceEntry) {
	if h, over := e.state.News(r); over {
		e.span("leaderelection.handover", h.From, h.To, nil,
			attribute.Int64("leaderelection.fencing_token", int64(h.Number)),
			attribute.Int64("leaderelection.previous_fencing_token", int64(h.Previous)),
			attribute.String("leaderelection.cause", h.Cause))
	}
}

func (e *Election) feed(f leaderelection.FeedEvent) {
	e.feedEvent(1, measure.FeedEvent(f))
}

func (e *Election) feedEvent(n int64, event string) {
	e.in.FeedEvents.Add(context.Background(), n, e.with(attribute.String("leaderelection.event", event)))
}

func (e *Election) clockSkew(*leaderelection.ClockSkewError) {
	e.in.ClockSkews.Add(context.Background(), 1, e.with())
}

func (e *Election) duplicate(leaderelection.RaceEntry) {
	e.in.Duplicates.Add(context.Background(), 1, e.with())
}

// maker makes instruments, and keeps what the meter has against them.
type maker struct {
	metric.Meter
	faults []error
}

func (m *maker) counter(name, unit, help string, _ ...string) metric.Int64Counter {
	c, err := m.Int64Counter("leaderelection."+name, metric.WithUnit(unit), metric.WithDescription(help))
	m.faults = append(m.faults, err)
	return c
}

func (m *maker) histogram(bounds []float64, name, unit, help string, _ ...string) metric.Float64Histogram {
	h, err := m.Float64Histogram("leaderelection."+name, metric.WithUnit(unit), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(bounds...))
	m.faults = append(m.faults, err)
	return h
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
	state    *measure.Group
	in       measure.GroupInstruments[metric.Int64Counter]
	callback metric.Registration
}

// Member returns the telemetry of the member that config describes, in the group of that
// name, or what the MeterProvider has against its instruments. Give its Trace to the member,
// by Config.ShardTrace, and close it when the member is done. Attributes are those of a
// candidate: the group is the election, and the MemberID the candidate.
func (t *Telemetry) Member(group string, config shard.Config) (*Group, error) {
	g, m := &Group{named: t.named(group, config.MemberID), state: measure.NewGroup(config.Clock)}, &maker{Meter: t.meter}
	g.in = measure.NewGroupInstruments(m.counter)
	var err error
	g.callback, err = m.observe(func() []measure.Gauge { return g.state.Now().Gauges() }, g.with())
	if err != nil {
		return nil, err
	}
	g.in.Taken.Add(context.Background(), 0, g.with())
	for _, cause := range measure.GroupCauses() {
		g.in.LetGo.Add(context.Background(), 0, g.with(attribute.String("leaderelection.cause", cause)))
	}
	return g, nil
}

// Close takes back what Member registered: the gauges are not reported any more.
func (g *Group) Close() error { return g.callback.Unregister() }

// Trace returns the hooks, for Config.ShardTrace.
func (g *Group) Trace() *shard.Trace {
	return &shard.Trace{
		Owns: func(shard.Owns) {
			g.state.Owns()
			g.in.Taken.Add(context.Background(), 1, g.with())
		},
		LetGo: func(e shard.LetGo) {
			why := attribute.String("leaderelection.cause", g.state.LetGo(e.Cause))
			g.in.LetGo.Add(context.Background(), 1, g.with(why))
			g.span("leaderelection.shard.let_go", e.Asked, e.Time, nil, why,
				attribute.String("leaderelection.shard", e.Owned.Name()), attribute.Int64("leaderelection.shard.fencing_token", int64(e.Owned.ElectionNumber())))
		},
		Assignment: g.state.Assignment,
	}
}
