/*
Package leotel makes OpenTelemetry metrics and spans of what an election's
candidates and observers do.

	telemetry, err := leotel.New(leotel.Options{Election: "orders", Candidate: "worker-7"})
	...
	defer telemetry.Close()
	config.Trace = telemetry.Trace(nil)

It takes what it tells from [leaderelection.Trace], which the election does not
wait for: telemetry that is slow or stuck delays nothing.

# Metrics

	leaderelection.is_leader                 gauge: 1 while the view lasts and leadership is not being given up
	leaderelection.election_number           gauge: of the newest record known
	leaderelection.transitions               counter, by leaderelection.transition and leaderelection.cause
	leaderelection.view.remaining            gauge, s: what is left of the view; 0 while not leading
	leaderelection.leaderless.time           counter, s: for how long nobody led, as far as was known here
	leaderelection.extension.duration        histogram, s: of each extension that the store confirmed
	leaderelection.extension.reserve         histogram, s: what was left of the view when that came
	leaderelection.extension.failures        counter, by error.type
	leaderelection.store.operations          counter, by leaderelection.operation and leaderelection.outcome
	leaderelection.store.operation.duration  histogram, s, by the same
	leaderelection.clock.offset              gauge, s: by how much this machine's clock is ahead of the store's
	leaderelection.clock.offset.uncertainty  gauge, s: by how much that may be wrong, either way

All have leaderelection.election and leaderelection.candidate, which are
constants of the process. The others take few values each:

	leaderelection.transition  elected, ended
	leaderelection.cause       won; ousted, expired, resigned, unhealthy, clock_skew, shutdown, unknown
	leaderelection.operation   read, acquire, extend, release
	leaderelection.outcome     ok, lost_race, abandoned, error
	error.type                 lost_race, timeout, canceled, permanent, _OTHER

The clock's offset is known on stores that say when they wrote, and after each
write; its uncertainty is half the time that the write took, and more where the
store counts in whole seconds.

# Spans

leaderelection.acquire, leaderelection.extend and leaderelection.release are the
store's operations of those kinds. A leaderelection.handover reaches from the
moment in which this process began to give up leadership, or saw the record vacant,
to the next leader's record. They are roots, made when they have ended, with the
times at which they began and ended by the campaign's clock.

# Dashboard and alerts

Beside this file: dashboard.json, for Grafana on a Prometheus data source, and
alerts.yaml, five Prometheus rules with the reason for each. internal/alertstest runs
them with Prometheus' own rule engine.
*/
package leotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
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
	// Clock is the Config's or WatchConfig's. Nil: the system's.
	Clock clocks.Clock
}

// Telemetry is the telemetry of one campaign or one Watch. Its methods may be
// called by any number of goroutines at once.
type Telemetry struct {
	clock    clocks.Clock
	common   []attribute.KeyValue
	tracer   trace.Tracer
	in       instruments
	callback metric.Registration

	mu      sync.Mutex
	status  leaderelection.Status
	own     leaderelection.ElectionNumber // of the last leadership of one's own
	viewEnd time.Time
	known   leaderelection.RaceEntry // without Token
	ends    time.Time                // of known's term, by this clock
	counted time.Time                // leaderless is complete up to here
	without time.Duration            // leaderless so far
	offset  offset
	leaving *leaving
}

// offset is what the last write told of the clock.
type offset struct {
	known              bool
	value, uncertainty time.Duration
}

// leaving is a hand-over that has begun.
type leaving struct {
	at     time.Time
	number leaderelection.ElectionNumber
	cause  string
}

// New returns a Telemetry, or what the MeterProvider has against its instruments.
// Close it when the campaign is over.
func New(o Options) (*Telemetry, error) {
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.Clock == nil {
		o.Clock = clocks.System()
	}
	t := &Telemetry{clock: o.Clock, tracer: o.TracerProvider.Tracer(scope)}
	t.common = []attribute.KeyValue{attribute.String("leaderelection.election", o.Election)}
	if o.Candidate != "" {
		t.common = append(t.common, attribute.String("leaderelection.candidate", o.Candidate))
	}
	meter := o.MeterProvider.Meter(scope)
	if err := t.in.create(meter); err != nil {
		return nil, err
	}
	var err error
	t.callback, err = meter.RegisterCallback(t.observe, t.in.observed()...)
	if o.Candidate != "" {
		t.begin()
	}
	return t, err
}

// begin makes the series of transitions: a counter that is born at 1 has no increase
// that a rate could see.
func (t *Telemetry) begin() {
	t.transition(0, "elected", "won")
	for _, cause := range append([]string{"unknown", "shutdown"}, causes()...) {
		t.transition(0, "ended", cause)
	}
}

func (t *Telemetry) transition(n int64, what, cause string) {
	t.in.transitions.Add(context.Background(), n, t.with(attribute.String("leaderelection.transition", what), attribute.String("leaderelection.cause", cause)))
}

// Close takes back what New registered: the gauges are not reported any more.
func (t *Telemetry) Close() error { return t.callback.Unregister() }

// Trace returns the hooks, for Config.Trace or WatchConfig.Trace. Those of next
// are called as well, after its own; next may be nil.
func (t *Telemetry) Trace(next *leaderelection.Trace) *leaderelection.Trace {
	var n leaderelection.Trace
	if next != nil {
		n = *next
	}
	return &leaderelection.Trace{
		StoreOp:       after(t.storeOp, n.StoreOp),
		StatusChanged: after(t.statusChanged, n.StatusChanged),
		Extended:      after(t.extended, n.Extended),
		News:          after(t.news, n.News),
		Feed:          n.Feed,
		ClockSkew:     n.ClockSkew,
		DuplicateID:   n.DuplicateID,
	}
}

func after[E any](own, next func(E)) func(E) {
	if next == nil {
		return own
	}
	return func(e E) { own(e); next(e) }
}

// with is the attributes that a measurement has.
func (t *Telemetry) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more, t.common...)...)
}

func (t *Telemetry) storeOp(op leaderelection.StoreOp) {
	ctx := context.Background()
	outcome := t.with(attribute.String("leaderelection.operation", string(op.Kind)), attribute.String("leaderelection.outcome", outcomeOf(op)))
	t.in.operations.Add(ctx, 1, outcome)
	t.in.operationDuration.Record(ctx, op.Duration.Seconds(), outcome)
	if op.Kind == leaderelection.OpExtend {
		if op.Err == nil {
			t.in.extensionDuration.Record(ctx, op.Duration.Seconds(), t.with())
		} else {
			t.in.extensionFailures.Add(ctx, 1, t.with(attribute.String("error.type", errorType(op.Err))))
		}
	}
	if op.Kind == leaderelection.OpRead {
		return // its CommitTS is from when the record was written; nor is it worth a span
	}
	t.span("leaderelection."+string(op.Kind), op.Start, op.Start.Add(op.Duration), op.Err,
		attribute.Int64("leaderelection.election_number", int64(op.Number)))
	if op.Err == nil && !op.CommitTS.IsZero() {
		half := op.Duration / 2
		t.mu.Lock()
		t.offset = offset{known: true, value: op.Start.Add(half).Sub(op.CommitTS), uncertainty: half}
		if op.CommitTS.Nanosecond() == 0 {
			// A store that counts whole seconds cuts the rest off: it wrote half
			// a second later, give or take as much.
			t.offset.value -= time.Second / 2
			t.offset.uncertainty += time.Second / 2
		}
		t.mu.Unlock()
	}
}

func outcomeOf(op leaderelection.StoreOp) string {
	switch {
	case op.Abandoned:
		return "abandoned"
	case op.Err == nil:
		return "ok"
	case errors.Is(op.Err, leaderelection.ErrLostRace):
		return "lost_race"
	}
	return "error"
}

// errorType is err as one of a few words.
func errorType(err error) string {
	switch {
	case errors.Is(err, leaderelection.ErrLostRace):
		return "lost_race"
	case errors.Is(err, leaderelection.ErrPermanent):
		return "permanent"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "_OTHER"
}

func (t *Telemetry) statusChanged(c leaderelection.StatusChange) {
	t.mu.Lock()
	was := t.status
	t.status = c.To
	begun := was == leaderelection.Leading && c.To != leaderelection.Leading
	cause := causeOf(c.Cause)
	if c.Cause == nil && !c.Time.Before(t.viewEnd) {
		cause = "expired"
	}
	if c.To == leaderelection.Leading {
		t.own = c.Number
	}
	if begun && t.leaving == nil {
		t.leaving = &leaving{at: c.Time, number: t.own, cause: cause}
	}
	t.mu.Unlock()
	switch {
	case c.To == leaderelection.Leading:
		t.transition(1, "elected", "won")
	case begun:
		t.transition(1, "ended", cause)
	}
}

// words are for the causes that the library knows.
var words = []struct {
	err  error
	word string
}{
	{leaderelection.ErrOusted, "ousted"}, {leaderelection.ErrExpired, "expired"}, {leaderelection.ErrResigned, "resigned"},
	{leaderelection.ErrUnhealthy, "unhealthy"}, {leaderelection.ErrClockSkew, "clock_skew"},
}

func causes() (all []string) {
	for _, c := range words {
		all = append(all, c.word)
	}
	return all
}

// causeOf is why a leadership ended, as one of a few words.
func causeOf(err error) string {
	for _, c := range words {
		if errors.Is(err, c.err) {
			return c.word
		}
	}
	if err == nil {
		return "unknown"
	}
	return "shutdown" // the cause of the ctx given to Start
}

func (t *Telemetry) extended(e leaderelection.ViewExtended) {
	t.mu.Lock()
	t.viewEnd = e.Expiry
	t.mu.Unlock()
	if e.Extension > 0 {
		t.in.extensionReserve.Record(context.Background(), e.Remaining.Seconds(), t.with())
	}
}

func (t *Telemetry) news(e leaderelection.RaceEntry) {
	now := t.clock.Now().Round(0)
	e.Token = nil
	t.mu.Lock()
	t.count(now)
	t.known, t.ends = e, e.TermExpiry
	if e.Unsynchronized {
		t.ends = now.Add(e.TermLength) // its writer's clock tells nothing here
	}
	if t.counted.IsZero() {
		t.counted = now
	}
	l := t.leaving
	switch {
	case e.Vacant() && l == nil && e.ElectionNumber != leaderelection.NoElections:
		t.leaving = &leaving{at: now, number: e.ElectionNumber, cause: "resigned"}
		l = nil
	case e.Vacant() || l == nil || e.ElectionNumber <= l.number:
		l = nil
	default:
		t.leaving = nil
	}
	t.mu.Unlock()
	if l != nil {
		t.span("leaderelection.handover", l.at, now, nil,
			attribute.Int64("leaderelection.election_number", int64(e.ElectionNumber)),
			attribute.Int64("leaderelection.previous_election_number", int64(l.number)),
			attribute.String("leaderelection.cause", l.cause))
	}
}

// count brings the leaderless time up to date. Under t.mu.
func (t *Telemetry) count(now time.Time) {
	if t.counted.IsZero() {
		return // nothing has been known yet
	}
	from := t.counted
	if !t.known.Vacant() && t.ends.After(from) {
		from = t.ends
	}
	if now.After(from) {
		t.without += now.Sub(from)
	}
	if now.After(t.counted) {
		t.counted = now
	}
}
