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
