package leprom

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/c8e606e4/leaderelection/internal/measure"
	"github.com/c8e606e4/leaderelection/shard"
)

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
	g := &Group{metrics: m, names: n, state: measure.NewGroup(config.Clock, shardErrors)}
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
		Assignment: func(a *shard.Assignment) { g.state.Assignment(a) },
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

// shardErrors are for package measure, which knows nothing of package shard.
var shardErrors = measure.ShardErrors{Moved: shard.ErrMoved, SetBack: shard.ErrSetBack, Failed: shard.ErrFailed}

// count counts, while g is not closed.
func (g *Group) count(v *prometheus.CounterVec, more ...string) {
	g.metrics.mu.Lock()
	defer g.metrics.mu.Unlock()
	if g.metrics.groups[g.names] == g {
		v.WithLabelValues(append([]string{g.election, g.candidate}, more...)...).Inc()
	}
}
