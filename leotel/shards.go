package leotel

import (
	"context"

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
	in       measure.GroupInstruments[metric.Int64Counter]
	callback metric.Registration
}

// NewGroup returns the telemetry of a member, or what the MeterProvider has against its
// instruments. Of the Options it takes Election, the group's name, Candidate, the MemberID,
// the providers and the Clock. Close it when the member is done.
func NewGroup(o Options) (*Group, error) {
	spans, m := provided(o)
	g := &Group{state: measure.NewGroup(o.Clock, shardErrors), spans: spans, in: measure.NewGroupInstruments(m.counter)}
	var err error
	g.callback, err = m.observe(func() []measure.Gauge { return g.state.Now().Gauges() }, g.spans.with())
	if err != nil {
		return nil, err
	}
	g.in.Taken.Add(context.Background(), 0, g.spans.with())
	for _, cause := range measure.GroupCauses() {
		g.in.LetGo.Add(context.Background(), 0, g.spans.with(attribute.String("leaderelection.cause", cause)))
	}
	return g, nil
}

// Close takes back what NewGroup registered: the gauges are not reported any more.
func (g *Group) Close() error { return g.callback.Unregister() }

// Trace returns the hooks, for Config.ShardTrace.
func (g *Group) Trace() *shard.Trace {
	return &shard.Trace{
		Owns: func(shard.Owns) {
			g.state.Owns()
			g.in.Taken.Add(context.Background(), 1, g.spans.with())
		},
		LetGo: func(e shard.LetGo) {
			why := attribute.String("leaderelection.cause", g.state.LetGo(e.Cause))
			g.in.LetGo.Add(context.Background(), 1, g.spans.with(why))
			g.spans.span("leaderelection.shard.let_go", e.Asked, e.Time, nil, why,
				attribute.String("leaderelection.shard", e.Owned.Name()), attribute.Int64("leaderelection.shard.fencing_token", int64(e.Owned.Token())))
		},
		Assignment: func(a *shard.Assignment) { g.state.Assignment(a) },
	}
}

// shardErrors are for package measure, which knows nothing of package shard.
var shardErrors = measure.ShardErrors{Moved: shard.ErrMoved, SetBack: shard.ErrSetBack, Failed: shard.ErrFailed}
