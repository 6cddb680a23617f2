package leotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/c8e606e4/leaderelection/internal/measure"
)

// instruments are all there are.
type instruments struct {
	transitions, extensionFailures, operations                           metric.Int64Counter
	feedEvents, clockSkews, duplicates                                   metric.Int64Counter
	extensionDuration, extensionReserve, reserveRatio, operationDuration metric.Float64Histogram

	isLeader, fencingToken                       metric.Int64ObservableGauge
	viewRemaining, clockOffset, clockUncertainty metric.Float64ObservableGauge
	leaderless, termLength, maxSkew, hold        metric.Float64ObservableGauge
	leaderlessTime                               metric.Float64ObservableCounter
}

// The bounds of the histograms: a store answers in a millisecond to some
// seconds; a view's reserve is up to a term, of seconds to a minute, and up to the
// whole view.
var (
	durations = metric.WithExplicitBucketBoundaries(.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10)
	reserves  = metric.WithExplicitBucketBoundaries(.1, .2, .5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 30, 60)
	ratios    = metric.WithExplicitBucketBoundaries(.05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .75, 1)
)

func (i *instruments) create(m metric.Meter) error {
	var errs [20]error
	i.transitions, errs[0] = m.Int64Counter("leaderelection.transitions", metric.WithUnit("{transition}"),
		metric.WithDescription("Leaderships of this candidate that began or ended, by cause."))
	i.extensionFailures, errs[1] = m.Int64Counter("leaderelection.extension.failures", metric.WithUnit("{failure}"),
		metric.WithDescription("Extensions of the lease that the store did not confirm in time."))
	i.operations, errs[2] = m.Int64Counter("leaderelection.store.operations", metric.WithUnit("{operation}"),
		metric.WithDescription("Calls of the store, by kind and outcome."))
	i.extensionDuration, errs[3] = m.Float64Histogram("leaderelection.extension.duration", metric.WithUnit("s"), durations,
		metric.WithDescription("How long the store took to confirm an extension of the lease."))
	i.extensionReserve, errs[4] = m.Float64Histogram("leaderelection.extension.reserve", metric.WithUnit("s"), reserves,
		metric.WithDescription("What was left of the view when an extension was confirmed."))
	i.operationDuration, errs[5] = m.Float64Histogram("leaderelection.store.operation.duration", metric.WithUnit("s"), durations,
		metric.WithDescription("How long calls of the store took, or until they were given up, by kind and outcome."))
	i.isLeader, errs[6] = m.Int64ObservableGauge("leaderelection.is_leader", metric.WithUnit("{leader}"),
		metric.WithDescription("1 while this candidate leads, by its view, else 0."))
	i.fencingToken, errs[7] = m.Int64ObservableGauge("leaderelection.fencing_token", metric.WithUnit("{token}"),
		metric.WithDescription("The fencing token of the newest leadership known."))
	i.viewRemaining, errs[8] = m.Float64ObservableGauge("leaderelection.view.remaining", metric.WithUnit("s"),
		metric.WithDescription("How much longer this candidate may act as the leader without a further extension."))
	i.clockOffset, errs[9] = m.Float64ObservableGauge("leaderelection.clock.offset", metric.WithUnit("s"),
		metric.WithDescription("By how much this machine's clock is ahead of the store's, from the last write."))
	i.clockUncertainty, errs[10] = m.Float64ObservableGauge("leaderelection.clock.offset.uncertainty", metric.WithUnit("s"),
		metric.WithDescription("By how much the clock's offset may be wrong, either way."))
	i.leaderlessTime, errs[11] = m.Float64ObservableCounter("leaderelection.leaderless.time", metric.WithUnit("s"),
		metric.WithDescription("For how long nobody led, as far as was known here."))
	i.leaderless, errs[12] = m.Float64ObservableGauge("leaderelection.leaderless", metric.WithUnit("s"),
		metric.WithDescription("For how long nobody has led now, as far as is known here; 0 while somebody does."))
	i.termLength, errs[13] = m.Float64ObservableGauge("leaderelection.term.length", metric.WithUnit("s"),
		metric.WithDescription("The term length of the newest record known."))
	i.maxSkew, errs[14] = m.Float64ObservableGauge("leaderelection.clock.max_skew", metric.WithUnit("s"),
		metric.WithDescription("The MaxClockSkew that was agreed on."))
	i.reserveRatio, errs[15] = m.Float64Histogram("leaderelection.extension.reserve.ratio", ratios,
		metric.WithDescription("What was left of the view when an extension was confirmed, as a share of its whole span."))
	i.feedEvents, errs[16] = m.Int64Counter("leaderelection.feed.events", metric.WithUnit("{event}"),
		metric.WithDescription("Starts and failures of the store's feed of changes."))
	i.clockSkews, errs[17] = m.Int64Counter("leaderelection.clock.skews", metric.WithUnit("{proof}"),
		metric.WithDescription("How often this machine's clock was newly proved to be off by more than MaxClockSkew."))
	i.duplicates, errs[18] = m.Int64Counter("leaderelection.duplicate_ids", metric.WithUnit("{leadership}"),
		metric.WithDescription("Leaderships of another process under this candidate's LeaderID."))
	i.hold, errs[19] = m.Float64ObservableGauge("leaderelection.hold", metric.WithUnit("s"),
		metric.WithDescription("Of a job's election: for how long a run keeps others out; 0 if it is none."))
	return errors.Join(errs[:]...)
}

// observed are those that observe reports.
func (i *instruments) observed() []metric.Observable {
	return []metric.Observable{
		i.isLeader, i.fencingToken, i.viewRemaining, i.clockOffset, i.clockUncertainty, i.leaderless, i.leaderlessTime, i.termLength, i.maxSkew, i.hold,
	}
}

// observe reports how things stand when the metrics are collected.
func (t *Telemetry) observe(_ context.Context, o metric.Observer) error {
	now, with := t.election.Now(), t.with()
	leads := int64(0)
	if now.Leading {
		leads = 1
	}
	o.ObserveInt64(t.in.isLeader, leads, with)
	o.ObserveInt64(t.in.fencingToken, int64(now.Number), with)
	for _, g := range []struct {
		in    metric.Float64Observable
		value time.Duration
	}{
		{t.in.viewRemaining, now.Remaining}, {t.in.leaderlessTime, now.Without}, {t.in.leaderless, now.Leaderless},
		{t.in.termLength, now.Term}, {t.in.maxSkew, now.Skew}, {t.in.hold, now.Hold},
	} {
		o.ObserveFloat64(g.in, g.value.Seconds(), with)
	}
	if now.OffsetKnown {
		o.ObserveFloat64(t.in.clockOffset, now.Offset.Seconds(), with)
		o.ObserveFloat64(t.in.clockUncertainty, now.Uncertainty.Seconds(), with)
	}
	return nil
}

// span makes one of what has passed.
func (t *Telemetry) span(name string, from, to time.Time, err error, more ...attribute.KeyValue) {
	_, span := t.tracer.Start(context.Background(), name, trace.WithNewRoot(), trace.WithTimestamp(from),
		trace.WithSpanKind(kindOf(name)), trace.WithAttributes(append(more, t.common...)...))
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
