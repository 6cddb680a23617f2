package leotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/c8e606e4/leaderelection/internal/measure"
	"github.com/c8e606e4/leaderelection/shard"
)

// Group is the telemetry of one member of a group of package shard. Its methods may be
// called by any number of goroutines at once.
type Group struct {
	state    *measure.Group
	spans    *Telemetry // its attributes and its tracer only
	callback metric.Registration

	taken, letGo                                      metric.Int64Counter
	owned, placed, unowned, moving, failing, versions metric.Int64ObservableGauge
	without                                           metric.Float64ObservableCounter
}

// NewGroup returns the telemetry of a member, or what the MeterProvider has against its
// instruments. Of the Options it takes Election, the group's name, Candidate, the MemberID,
// the providers and the Clock. Close it when the member is done.
func NewGroup(o Options) (*Group, error) {
	spans, meter := provided(o)
	g := &Group{state: measure.NewGroup(o.Clock, shardErrors), spans: spans}
	if err := g.create(meter); err != nil {
		return nil, err
	}
	g.taken.Add(context.Background(), 0, g.spans.with())
	for _, cause := range measure.GroupCauses() {
		g.letGo.Add(context.Background(), 0, g.spans.with(attribute.String("leaderelection.cause", cause)))
	}
	var err error
	g.callback, err = meter.RegisterCallback(g.observe, g.owned, g.placed, g.unowned, g.moving, g.failing, g.versions, g.without)
	return g, err
}

func (g *Group) create(m metric.Meter) error {
	var faults []error
	counter := func(name, text string) metric.Int64Counter {
		c, err := m.Int64Counter("leaderelection.shards."+name, metric.WithUnit("{shard}"), metric.WithDescription(text))
		faults = append(faults, err)
		return c
	}
	gauge := func(name, unit, text string) metric.Int64ObservableGauge {
		c, err := m.Int64ObservableGauge("leaderelection.shards."+name, metric.WithUnit(unit), metric.WithDescription(text))
		faults = append(faults, err)
		return c
	}
	g.taken = counter("taken", "Shards that this member came to own.")
	g.letGo = counter("let_go", "Shards that this member owns no more, by cause.")
	g.owned = gauge("owned", "{shard}", "Shards that this member owns.")
	g.placed = gauge("placed", "{shard}", "Shards of the group that have an owner, by the newest assignment known here.")
	g.unowned = gauge("unowned", "{shard}", "Shards of the group that have no owner, by the newest assignment known here.")
	g.moving = gauge("moving", "{shard}", "Shards of the group whose owner is asked to let them go, by the newest assignment known here.")
	g.failing = gauge("failing", "{shard}", "Shards of the group with which a member has failed within the last hour, by the newest assignment known here.")
	g.versions = gauge("assignment.version", "{version}", "The version of the newest assignment known here.")
	var err error
	g.without, err = m.Float64ObservableCounter("leaderelection.shards.unowned.time", metric.WithUnit("s"),
		metric.WithDescription("For how long shards had no owner, as far as was known here, added up over all shards."))
	return errors.Join(append(faults, err)...)
}

func (g *Group) observe(_ context.Context, o metric.Observer) error {
	now, with := g.state.Now(), g.spans.with()
	o.ObserveInt64(g.owned, int64(now.Owned), with)
	o.ObserveFloat64(g.without, now.Without.Seconds(), with)
	if now.Known {
		o.ObserveInt64(g.placed, int64(now.Placed), with)
		o.ObserveInt64(g.unowned, int64(now.Unowned), with)
		o.ObserveInt64(g.moving, int64(now.Moving), with)
		o.ObserveInt64(g.failing, int64(now.Failing), with)
		o.ObserveInt64(g.versions, int64(now.Version), with)
	}
	return nil
}

// Close takes back what NewGroup registered: the gauges are not reported any more.
func (g *Group) Close() error { return g.callback.Unregister() }

// Trace returns the hooks, for Config.ShardTrace.
func (g *Group) Trace() *shard.Trace {
	return &shard.Trace{
		Owns: func(shard.Owns) {
			g.state.Owns()
			g.taken.Add(context.Background(), 1, g.spans.with())
		},
		LetGo: func(e shard.LetGo) {
			why := attribute.String("leaderelection.cause", g.state.LetGo(e.Cause))
			g.letGo.Add(context.Background(), 1, g.spans.with(why))
			g.spans.span("leaderelection.shard.let_go", e.Asked, e.Time, nil, why,
				attribute.String("leaderelection.shard", e.Owned.Name()), attribute.Int64("leaderelection.shard.fencing_token", int64(e.Owned.Token())))
		},
		Assignment: func(a *shard.Assignment) { g.state.Assignment(counted(a)) },
	}
}

// shardErrors and counted give package measure, which knows nothing of package shard, what it
// measures.
var shardErrors = measure.ShardErrors{Moved: shard.ErrMoved, SetBack: shard.ErrSetBack, Failed: shard.ErrFailed}

func counted(a *shard.Assignment) measure.Assignment {
	all := measure.Assignment{Version: uint64(a.Version())}
	for i := range a.Len() {
		name, owner := a.Shard(i)
		all.Count(owner.Session != (shard.SessionID{}), owner.Moving, len(a.Failures(name)) > 0)
	}
	return all
}
