package measure

import (
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/shard"
)

// The bounds of the histograms: a store answers in a millisecond to some seconds; a view's
// reserve is up to a term, of seconds to a minute, and up to the whole view.
var (
	durations = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
	reserves  = []float64{.1, .2, .5, 1, 2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 30, 60}
	ratios    = []float64{.05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .75, 1}
)

// Counter makes a counter. Name and labels are those of OpenTelemetry, the name without the
// leading "leaderelection.".
type Counter[C any] func(name, unit, help string, labels ...string) C

// Histogram makes a histogram, as Counter makes a counter.
type Histogram[H any] func(bounds []float64, name, unit, help string, labels ...string) H

// Instruments are the metrics of an election that are counted as things happen.
type Instruments[C, H any] struct {
	Transitions, ExtensionFailures, Operations, FeedEvents, ClockSkews, Duplicates C
	ExtensionDuration, ExtensionReserve, ReserveRatio, OperationDuration           H
}

// NewInstruments makes all of them.
func NewInstruments[C, H any](counter Counter[C], histogram Histogram[H]) Instruments[C, H] {
	return Instruments[C, H]{
		Transitions:       counter("transitions", "{transition}", "Leaderships of this candidate that began or ended, by cause.", "leaderelection.transition", "leaderelection.cause"),
		ExtensionFailures: counter("extension.failures", "{failure}", "Extensions of the lease that the store did not confirm in time.", "error.type"),
		Operations:        counter("store.operations", "{operation}", "Calls of the store, by kind and outcome.", "leaderelection.operation", "leaderelection.outcome"),
		FeedEvents:        counter("feed.events", "{event}", "Starts and failures of the store's feed of changes.", "leaderelection.event"),
		ClockSkews:        counter("clock.skews", "{proof}", "How often this machine's clock was newly proved to be off by more than MaxClockSkew."),
		Duplicates:        counter("duplicate_ids", "{leadership}", "Leaderships of another process under this candidate's LeaderID."),
		ExtensionDuration: histogram(durations, "extension.duration", "s", "How long the store took to confirm an extension of the lease."),
		ExtensionReserve:  histogram(reserves, "extension.reserve", "s", "What was left of the view when an extension was confirmed."),
		ReserveRatio:      histogram(ratios, "extension.reserve.ratio", "", "What was left of the view when an extension was confirmed, as a share of its whole span."),
		OperationDuration: histogram(durations, "store.operation.duration", "s", "How long calls of the store took, or until they were given up, by kind and outcome.", "leaderelection.operation", "leaderelection.outcome"),
	}
}

// GroupInstruments are those of a group's member.
type GroupInstruments[C any] struct{ Taken, LetGo C }

// NewGroupInstruments makes both of them.
func NewGroupInstruments[C any](counter Counter[C]) GroupInstruments[C] {
	return GroupInstruments[C]{
		Taken: counter("shards.taken", "{shard}", "Shards that this member came to own."),
		LetGo: counter("shards.let_go", "{shard}", "Shards that this member owns no more, by cause.", "leaderelection.cause"),
	}
}

// Recorder counts what happens to a candidate, or what an observer sees. Count adds n to a counter, and
// Observe gives a value to a histogram, with values for the labels that it was made with.
type Recorder[C, H any] struct {
	State *Election
	Instruments[C, H]
	Count    func(c C, n int, labels ...string)
	Observe  func(h H, value float64, labels ...string)
	Handover func(Handover) // nil: nobody is told
}

// Begin makes the series of counters: one that is born at 1 has no increase that a rate could see.
// An observer has those of its feed only.
func (r *Recorder[C, H]) Begin(candidate bool) {
	for _, event := range []string{"started", "failed"} {
		r.Count(r.FeedEvents, 0, event)
	}
	if candidate {
		r.Count(r.Transitions, 0, elected, won)
		for _, cause := range causes() {
			r.Count(r.Transitions, 0, ended, cause)
		}
		r.Count(r.ClockSkews, 0)
		r.Count(r.Duplicates, 0)
	}
}

// Trace returns the hooks, for Config.Trace or WatchConfig.Trace.
func (r *Recorder[C, H]) Trace() *leaderelection.Trace {
	return &leaderelection.Trace{
		StoreOp: r.storeOp,
		StatusChanged: func(c leaderelection.StatusChange) {
			if what, cause, is := r.State.StatusChanged(c); is {
				r.Count(r.Transitions, 1, what, cause)
			}
		},
		Extended: func(x leaderelection.ViewExtended) {
			share, known := r.State.Extended(x)
			if x.Extension > 0 {
				r.Observe(r.ExtensionReserve, x.Remaining.Seconds())
			}
			if known {
				r.Observe(r.ReserveRatio, share)
			}
		},
		News: func(e leaderelection.RaceEntry) {
			if h, over := r.State.News(e); over && r.Handover != nil {
				r.Handover(h)
			}
		},
		Feed: func(f leaderelection.FeedEvent) {
			event := "started"
			if f.Err != nil {
				event = "failed"
			}
			r.Count(r.FeedEvents, 1, event)
		},
		ClockSkew:   func(*leaderelection.ClockSkewError) { r.Count(r.ClockSkews, 1) },
		DuplicateID: func(leaderelection.RaceEntry) { r.Count(r.Duplicates, 1) },
		Job:         r.State.Job,
	}
}

func (r *Recorder[C, H]) storeOp(op leaderelection.StoreOp) {
	r.State.StoreOp(op)
	kind, outcome, took := string(op.Kind), outcome(op), op.Duration.Seconds()
	r.Count(r.Operations, 1, kind, outcome)
	r.Observe(r.OperationDuration, took, kind, outcome)
	switch {
	case op.Kind != leaderelection.OpExtend:
	case op.Err == nil:
		r.Observe(r.ExtensionDuration, took)
	default:
		r.Count(r.ExtensionFailures, 1, ErrorType(op.Err))
	}
}

// GroupRecorder is Recorder for a group's member.
type GroupRecorder[C any] struct {
	State *Group
	GroupInstruments[C]
	Count func(c C, n int, labels ...string)
	Gone  func(e shard.LetGo, cause string) // nil: nobody is told of what was let go
}

// Begin makes the series of counters.
func (r *GroupRecorder[C]) Begin() {
	r.Count(r.Taken, 0)
	for _, cause := range append(causes(), "moved", "set_back", "failed") {
		r.Count(r.LetGo, 0, cause)
	}
}

// Trace returns the hooks, for Config.ShardTrace.
func (r *GroupRecorder[C]) Trace() *shard.Trace {
	return &shard.Trace{
		Owns: func(shard.Owns) {
			r.State.Owns()
			r.Count(r.Taken, 1)
		},
		LetGo: func(e shard.LetGo) {
			cause := r.State.LetGo(e.Cause)
			if r.Count(r.LetGo, 1, cause); r.Gone != nil {
				r.Gone(e, cause)
			}
		},
		Assignment: r.State.Assignment,
	}
}

// Gauge is a metric that is worked out when the metrics are collected. Its name is like a
// Counter's.
type Gauge struct {
	Name, Unit, Help string
	Value            int64 // of the Unit "s": a time.Duration
	Known            bool  // else it is left out
	Total            bool  // it only grows: it is a counter
}

// Float is the Value in the Unit.
func (g Gauge) Float() float64 {
	if g.Unit == "s" {
		return time.Duration(g.Value).Seconds()
	}
	return float64(g.Value)
}

// Gauges returns all gauges of an election, always in this order.
func (s Snapshot) Gauges() []Gauge {
	is := func(yes bool) int64 {
		if yes {
			return 1
		}
		return 0
	}
	return []Gauge{
		{"is_leader", "{leader}", "1 while this candidate leads, by its view, else 0.", is(s.Leading), true, false},
		{"fencing_token", "{token}", "The fencing token of the newest leadership known.", int64(s.Number), true, false},
		{"view.remaining", "s", "How much longer this candidate may act as the leader without a further extension.", int64(s.Remaining), true, false},
		{"leaderless", "s", "For how long nobody has led now, as far as is known here; 0 while somebody does.", int64(s.Leaderless), true, false},
		{"leaderless.time", "s", "For how long nobody led, as far as was known here.", int64(s.Without), true, true},
		{"term.length", "s", "The term length of the newest record known.", int64(s.Term), true, false},
		{"job", "{job}", "1 for a job's election, which nobody leads between the runs, else 0.", is(s.Job), true, false},
		{"hold", "s", "Of a job's election: for how long a run keeps others out; 0 if it does not.", int64(s.Hold), true, false},
		{"clock.max_skew", "s", "The MaxClockSkew that was agreed on.", int64(s.Skew), true, false},
		{"clock.offset", "s", "By how much this machine's clock is ahead of the store's, from the last write.", int64(s.Offset), s.OffsetKnown, false},
		{"clock.offset.uncertainty", "s", "By how much the clock's offset may be wrong, either way.", int64(s.Uncertainty), s.OffsetKnown, false},
	}
}

// Gauges returns all gauges of a group's member, always in this order.
func (s GroupSnapshot) Gauges() []Gauge {
	return []Gauge{
		{"shards.owned", "{shard}", "Shards that this member owns.", int64(s.Owned), true, false},
		{"shards.placed", "{shard}", "Shards of the group that have an owner, by the newest assignment known here.", int64(s.Placed), s.Known, false},
		{"shards.unowned", "{shard}", "Shards of the group that have no owner, by the newest assignment known here.", int64(s.Unowned), s.Known, false},
		{"shards.moving", "{shard}", "Shards of the group whose owner is asked to let them go, by the newest assignment known here.", int64(s.Moving), s.Known, false},
		{"shards.failing", "{shard}", "Shards of the group with which a member has failed within the last hour, by the newest assignment known here.", int64(s.Failing), s.Known, false},
		{"shards.assignment.version", "{version}", "The version of the newest assignment known here.", int64(s.Version), s.Known, false},
		{"shards.unowned.time", "s", "For how long shards had no owner, as far as was known here, added up over all shards.", int64(s.Without), true, true},
	}
}
