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
	m.taken.WithLabelValues(n.election, n.candidate)
	for _, cause := range measure.GroupCauses() {
		m.letGo.WithLabelValues(n.election, n.candidate, cause)
	}
	return g, nil
}

// Trace returns the hooks, for Config.ShardTrace.
func (g *Group) Trace() *shard.Trace {
	return &shard.Trace{
		Owns: func(shard.Owns) {
			g.state.Owns()
			g.count(g.metrics.taken)
		},
		LetGo:      func(e shard.LetGo) { g.count(g.metrics.letGo, g.state.LetGo(e.Cause)) },
		Assignment: func(a *shard.Assignment) { g.state.Assignment(counted(a)) },
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
	for _, v := range []vector{g.metrics.taken, g.metrics.letGo} {
		v.DeletePartialMatch(prometheus.Labels{electionLabel: g.election, candidateLabel: g.candidate})
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

// count counts, while g is not closed.
func (g *Group) count(v *prometheus.CounterVec, more ...string) {
	g.metrics.mu.Lock()
	defer g.metrics.mu.Unlock()
	if g.metrics.groups[g.names] == g {
		v.WithLabelValues(append([]string{g.election, g.candidate}, more...)...).Inc()
	}
}

// groupVectors are what is counted of shards when it happens.
type groupVectors struct{ taken, letGo *prometheus.CounterVec }

func newGroupVectors() groupVectors {
	return groupVectors{
		taken: counter("shards_taken_total", "Shards that this member came to own."),
		letGo: counter("shards_let_go_total", "Shards that this member owns no more, by cause.", causeLabel),
	}
}

// groupGauge is what is worked out of a group when it is asked for.
type groupGauge struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	always bool // also before there is an assignment
	value  func(*measure.GroupSnapshot) float64
}

func newGroupGauge(kind prometheus.ValueType, always bool, name, help string, value func(*measure.GroupSnapshot) float64) groupGauge {
	return groupGauge{prometheus.NewDesc("leaderelection_"+name, help, []string{electionLabel, candidateLabel}, nil), kind, always, value}
}

var groupGauges = []groupGauge{
	newGroupGauge(prometheus.GaugeValue, true, "shards_owned", "Shards that this member owns.", func(s *measure.GroupSnapshot) float64 { return float64(s.Owned) }),
	newGroupGauge(prometheus.GaugeValue, false, "shards_placed", "Shards of the group that have an owner, by the newest assignment known here.", func(s *measure.GroupSnapshot) float64 { return float64(s.Placed) }),
	newGroupGauge(prometheus.GaugeValue, false, "shards_unowned", "Shards of the group that have no owner, by the newest assignment known here.", func(s *measure.GroupSnapshot) float64 { return float64(s.Unowned) }),
	newGroupGauge(prometheus.GaugeValue, false, "shards_moving", "Shards of the group whose owner is asked to let them go, by the newest assignment known here.", func(s *measure.GroupSnapshot) float64 { return float64(s.Moving) }),
	newGroupGauge(prometheus.GaugeValue, false, "shards_failing", "Shards of the group with which a member has failed within the last hour, by the newest assignment known here.", func(s *measure.GroupSnapshot) float64 { return float64(s.Failing) }),
	newGroupGauge(prometheus.GaugeValue, false, "shards_assignment_version", "The version of the newest assignment known here.", func(s *measure.GroupSnapshot) float64 { return float64(s.Version) }),
	newGroupGauge(prometheus.CounterValue, true, "shards_unowned_time_seconds_total", "For how long shards had no owner, as far as was known here, added up over all shards.", func(s *measure.GroupSnapshot) float64 { return s.Without.Seconds() }),
}

// collectGroups reports how groups stand.
func (m *Metrics) collectGroups(to chan<- prometheus.Metric) {
	m.taken.Collect(to)
	m.letGo.Collect(to)
	m.mu.Lock()
	var all []*Group
	for _, g := range m.groups {
		all = append(all, g)
	}
	m.mu.Unlock()
	for _, g := range all {
		now := g.state.Now()
		for _, x := range groupGauges {
			if now.Known || x.always {
				to <- prometheus.MustNewConstMetric(x.desc, x.kind, x.value(&now), g.election, g.candidate)
			}
		}
	}
}
