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
	g, m := &Group{named: t.named(group, config.MemberID), state: measure.NewGroup(config.Clock, shardErrors)}, &maker{Meter: t.meter}
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
		Assignment: func(a *shard.Assignment) { g.state.Assignment(a) },
	}
}

// shardErrors are for package measure, which knows nothing of package shard.
var shardErrors = measure.ShardErrors{Moved: shard.ErrMoved, SetBack: shard.ErrSetBack, Failed: shard.ErrFailed}
