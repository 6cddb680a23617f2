/*
Package leotel makes OpenTelemetry metrics and spans of what an election's
candidates and observers do.

	telemetry, err := leotel.New(leotel.Options{Election: "orders", Candidate: "worker-7"})
	...
	defer telemetry.Close()
	config.Trace = telemetry.Trace()

It takes what it tells from [leaderelection.Trace], which the election does not
wait for: telemetry that is slow or stuck delays nothing.

# Metrics

	leaderelection.is_leader                 gauge: 1 while the view lasts and leadership is not being given up
	leaderelection.fencing_token             gauge: of the newest record known
	leaderelection.transitions               counter, by leaderelection.transition and leaderelection.cause
	leaderelection.view.remaining            gauge, s: what is left of the view; 0 while not leading
	leaderelection.leaderless.time           counter, s: for how long nobody led, as far as was known here
	leaderelection.leaderless                gauge, s: for how long nobody has led now, as far as is known here
	leaderelection.term.length               gauge, s: of the newest record known
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

and, by [NewGroup], for a member of a group of package shard (what they mean says leprom):

	leaderelection.shards.owned, .placed, .unowned, .moving, .failing, .assignment.version   gauges
	leaderelection.shards.unowned.time                                             counter, s
	leaderelection.shards.taken                                                    counter
	leaderelection.shards.let_go                                                   counter, by leaderelection.cause

All have leaderelection.election and leaderelection.candidate, which are
constants of the process. The others take few values each:

	leaderelection.transition  elected, ended
	leaderelection.cause       won; ousted, expired, resigned, unhealthy, clock_skew, shutdown, unknown
	leaderelection.operation   read, acquire, extend, release
	leaderelection.outcome     ok, lost_race, abandoned, error
	leaderelection.event       started, failed
	error.type                 lost_race, timeout, canceled, permanent, _OTHER

The clock's offset is known on stores that say when they wrote, and after each
write; its uncertainty is half the time that the write took, and more where the
store counts in whole seconds. It is left out if clocks are not compared
(the ClockPolicy SharedClock or Unsynchronized). Nobody is known to lead from when the record was left
vacant, or its term ran out, until there is another; until a record has been read,
since New.

Without OpenTelemetry, package leprom gives Prometheus the same metrics by the same
names.

# Spans

leaderelection.acquire, leaderelection.extend and leaderelection.release are the
store's operations of those kinds. A leaderelection.handover reaches from the
moment in which this process began to give up leadership, or saw the record vacant,
to the next leader's record. A leaderelection.shard.let_go reaches from the moment in which a
member was asked for a shard to the end of the shard's view. They are roots, made when they have ended, with the
times at which they began and ended by the campaign's clock.

# Dashboard and alerts

Beside this file: dashboard.json, for Grafana on a Prometheus data source, and
alerts.yaml, seven Prometheus rules with the reason for each: they judge by the gauges of
term and skew, so they fit every election. internal/alertstest runs them with
Prometheus' own rule engine.
*/
package leotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/measure"
)

// scope is the instrumentation's name.
const scope = "github.com/c8e606e4/leaderelection/leotel"

// Options say whose telemetry it is. The zero value is valid.
type Options struct {
	// Election names the election, and Candidate this process: its LeaderID.
	// Both become attributes of everything, and must be few in number.
	// Candidate is left out where empty, as for an observer.
	Election, Candidate string
	// MeterProvider and TracerProvider take the metrics and spans. Nil: the
	// global ones.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
	// TermLength, MaxClockSkew and ClockPolicy are the Config's: the
	// gauges of term and skew, by which the alerts judge. TermLength counts only until
	// a record names one. Zero: the Config's own defaults, 15 s and 1 s.
	TermLength, MaxClockSkew time.Duration
	ClockPolicy              leaderelection.ClockPolicy
	// Clock is the Config's or WatchConfig's. Nil: the system's.
	Clock clocks.Clock
}

// Telemetry is the telemetry of one campaign or one Watch. Its methods may be
// called by any number of goroutines at once.
type Telemetry struct {
	election *measure.Election
	common   []attribute.KeyValue
	tracer   trace.Tracer
	in       measure.Instruments[metric.Int64Counter, metric.Float64Histogram]
	callback metric.Registration
}

// New returns a Telemetry, or what the MeterProvider has against its instruments.
// Close it when the campaign is over.
func New(o Options) (*Telemetry, error) {
	t, m := provided(o)
	t.election = measure.New(measure.Options{
		Clock: o.Clock, TermLength: o.TermLength, MaxClockSkew: o.MaxClockSkew, ClockPolicy: o.ClockPolicy,
	})
	t.in = measure.NewInstruments(m.counter, m.histogram)
	var err error
	t.callback, err = m.observe(func() []measure.Gauge { return t.election.Now().Gauges() }, t.with())
	if err != nil {
		return nil, err
	}
	for _, event := range measure.FeedEvents() {
		t.feedEvent(0, event)
	}
	if o.Candidate != "" {
		t.begin()
	}
	return t, nil
}

// provided returns a Telemetry that makes spans with o's names and nothing else, and the maker
// of its instruments.
func provided(o Options) (*Telemetry, *maker) {
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	t := &Telemetry{tracer: o.TracerProvider.Tracer(scope), common: []attribute.KeyValue{attribute.String("leaderelection.election", o.Election)}}
	if o.Candidate != "" {
		t.common = append(t.common, attribute.String("leaderelection.candidate", o.Candidate))
	}
	return t, &maker{Meter: o.MeterProvider.Meter(scope)}
}

// begin makes the series of counters: one that is born at 1 has no increase that a rate
// could see.
func (t *Telemetry) begin() {
	t.transition(0, measure.Elected)
	for _, cause := range measure.Causes() {
		t.transition(0, measure.Transition{What: "ended", Cause: cause})
	}
	t.in.ClockSkews.Add(context.Background(), 0, t.with())
	t.in.Duplicates.Add(context.Background(), 0, t.with())
}

func (t *Telemetry) transition(n int64, what measure.Transition) {
	t.in.Transitions.Add(context.Background(), n, t.with(attribute.String("leaderelection.transition", what.What), attribute.String("leaderelection.cause", what.Cause)))
}

// Close takes back what New registered: the gauges are not reported any more.
func (t *Telemetry) Close() error { return t.callback.Unregister() }

// Trace returns the hooks, for Config.Trace or WatchConfig.Trace. See
// leaderelection.JoinTraces if others want hooks too.
func (t *Telemetry) Trace() *leaderelection.Trace {
	return &leaderelection.Trace{
		StoreOp:       t.storeOp,
		StatusChanged: t.statusChanged,
		Extended:      t.extended,
		News:          t.news,
		Feed:          t.feed,
		ClockSkew:     t.clockSkew,
		DuplicateID:   t.duplicate,
	}
}

// with is the attributes that a measurement has.
func (t *Telemetry) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, t.common...)...)
}

func (t *Telemetry) storeOp(op leaderelection.StoreOp) {
	ctx := context.Background()
	t.election.StoreOp(op)
	outcome := t.with(attribute.String("leaderelection.operation", string(op.Kind)), attribute.String("leaderelection.outcome", measure.Outcome(op)))
	t.in.Operations.Add(ctx, 1, outcome)
	t.in.OperationDuration.Record(ctx, op.Duration.Seconds(), outcome)
	if op.Kind == leaderelection.OpExtend {
		if op.Err == nil {
			t.in.ExtensionDuration.Record(ctx, op.Duration.Seconds(), t.with())
		} else {
			t.in.ExtensionFailures.Add(ctx, 1, t.with(attribute.String("error.type", measure.ErrorType(op.Err))))
		}
	}
	if op.Kind == leaderelection.OpRead {
		return // not worth a span
	}
	t.span("leaderelection."+string(op.Kind), op.Start, op.Start.Add(op.Duration), op.Err,
		attribute.Int64("leaderelection.fencing_token", int64(op.Number)))
}

func (t *Telemetry) statusChanged(c leaderelection.StatusChange) {
	if what, is := t.election.StatusChanged(c); is {
		t.transition(1, what)
	}
}

func (t *Telemetry) extended(e leaderelection.ViewExtended) {
	share, known := t.election.Extended(e)
	if e.Extension > 0 {
		t.in.ExtensionReserve.Record(context.Background(), e.Remaining.Seconds(), t.with())
	}
	if known {
		t.in.ReserveRatio.Record(context.Background(), share, t.with())
	}
}

func (t *Telemetry) news(e leaderelection.RaceEntry) {
	if h, over := t.election.News(e); over {
		t.span("leaderelection.handover", h.From, h.To, nil,
			attribute.Int64("leaderelection.fencing_token", int64(h.Number)),
			attribute.Int64("leaderelection.previous_fencing_token", int64(h.Previous)),
			attribute.String("leaderelection.cause", h.Cause))
	}
}

func (t *Telemetry) feed(f leaderelection.FeedEvent) {
	t.feedEvent(1, measure.FeedEvent(f))
}

func (t *Telemetry) feedEvent(n int64, event string) {
	t.in.FeedEvents.Add(context.Background(), n, t.with(attribute.String("leaderelection.event", event)))
}

func (t *Telemetry) clockSkew(leaderelection.ClockSkewError) {
	t.in.ClockSkews.Add(context.Background(), 1, t.with())
}

func (t *Telemetry) duplicate(leaderelection.RaceEntry) {
	t.in.Duplicates.Add(context.Background(), 1, t.with())
}
