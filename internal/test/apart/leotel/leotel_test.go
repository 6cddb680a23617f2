package leotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/leotel"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/measure/measuretest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
	"github.com/c8e606e4/leaderelection/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	T = measuretest.T
	S = measuretest.S
)

// rig is an Election whose metrics and spans a test can look at.
type rig struct {
	*leotel.Election
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
}

func newRig(t *testing.T, candidate string, clock clocks.Clock) *rig {
	t.Helper()
	r := &rig{reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	var err error
	if candidate == "" {
		r.Election, err = r.telemetry().Observer("orders", le.WatchConfig{Clock: clock})
	} else {
		r.Election, err = r.telemetry().Candidate("orders", le.Config{LeaderID: candidate, Clock: clock})
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) telemetry() *leotel.Telemetry {
	return leotel.New(&leotel.Options{
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(r.reader)),
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans)),
	})
}

// read returns each point as "name{attributes that are not constants}" and its
// value; of a histogram the count, and as name_sum the sum.
func (r *rig) read(t *testing.T) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	points := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			add := func(suffix string, set attribute.Set, v float64) {
				var more []string
				for _, kv := range set.ToSlice() {
					if kv.Key != "leaderelection.election" && kv.Key != "leaderelection.candidate" {
						more = append(more, kv.Value.String())
					}
				}
				name := strings.TrimPrefix(m.Name, "leaderelection.") + suffix
				if len(more) > 0 {
					name += "{" + strings.Join(more, ",") + "}"
				}
				points[name] = v
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				each(add, d.DataPoints)
			case metricdata.Sum[float64]:
				each(add, d.DataPoints)
			case metricdata.Gauge[int64]:
				each(add, d.DataPoints)
			case metricdata.Gauge[float64]:
				each(add, d.DataPoints)
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add("", p.Attributes, float64(p.Count))
					add("_sum", p.Attributes, p.Sum)
				}
			default:
				t.Fatalf("%s is a %T", m.Name, d)
			}
		}
	}
	return points
}

func each[N int64 | float64](add func(string, attribute.Set, float64), points []metricdata.DataPoint[N]) {
	for _, p := range points {
		add("", p.Attributes, float64(p.Value))
	}
}

// expect checks points.
func (r *rig) expect(t *testing.T, want map[string]float64) {
	t.Helper()
	measuretest.Expect(t, r.read(t), want)
}

// Each operation of a life is a span, reads apart: elected, extended, resigned, and another takes over. The
// metrics of a life are leprom's to test, which are the same: see TestLepromAndLeotelAreTheSame.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		r := newRig(t, "a", nil)
		ctx, cancel := context.WithCancel(t.Context())
		start := func(id string, trace *le.Trace) *le.Campaign {
			c, err := le.Config{
				Decider: d.Handle(), LeaderID: id, TermLength: T, MaxClockSkew: S, Trace: trace,
				OnElected: func(ctx context.Context, _ *le.TimeView) { <-ctx.Done() },
			}.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		campaign := start("a", r.Trace())
		time.Sleep(20 * time.Second) // extensions at 7 and 14 s
		r.expect(t, map[string]float64{"is_leader": 1, "view.remaining": 8, "store.operations{extend,ok}": 2})
		other := start("b", nil)
		synctest.Wait()
		if err := campaign.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		cancel()
		<-campaign.Done()
		<-other.Done()
		names := map[string]int{}
		for _, s := range r.spans.Ended() {
			names[strings.TrimPrefix(s.Name(), "leaderelection.")]++
		}
		if want := map[string]int{"acquire": 1, "extend": 2, "release": 1, "handover": 1}; !maps.Equal(names, want) {
			t.Errorf("the spans are %v, want %v", names, want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, still := r.read(t)["is_leader"]; still {
			t.Error("gauges are reported after Close")
		}
	})
}

// Each cause is one word, and so is each outcome: attributes are bounded.
func TestAttributesAreBounded(t *testing.T) {
	r := newRig(t, "a", nil)
	hooks := r.Trace()
	for i, c := range []struct {
		cause error
		word  string
	}{
		{le.ErrOusted, "ousted"}, {le.ErrExpired, "expired"}, {le.ErrResigned, "resigned"}, {le.ErrUnhealthy, "unhealthy"},
		{le.ErrClockSkew, "clock_skew"}, {nil, "unknown"}, {errors.New("anything"), "shutdown"}, {fmt.Errorf("wrapped: %w", le.ErrUnhealthy), "unhealthy"},
	} {
		n := le.ElectionNumber(i + 1)
		before := r.read(t)["transitions{"+c.word+",ended}"]
		hooks.StatusChanged(le.StatusChange{To: le.Leading, Number: n})
		hooks.Extended(le.ViewExtended{Number: n, Expiry: time.Now()})
		hooks.StatusChanged(le.StatusChange{From: le.Leading, To: le.Draining, Cause: c.cause, Number: n})
		hooks.StatusChanged(le.StatusChange{From: le.Draining, To: le.Following, Cause: c.cause, Number: n})
		r.expect(t, map[string]float64{"transitions{" + c.word + ",ended}": before + 1})
	}
	for _, c := range []struct {
		err       error
		abandoned bool
		outcome   string
		word      string
	}{
		{nil, false, "ok", ""}, {&le.LostRaceError{Place: "x"}, false, "lost_race", "lost_race"}, {context.DeadlineExceeded, true, "abandoned", "timeout"},
		{context.Canceled, false, "error", "canceled"}, {fmt.Errorf("%w: no bucket", le.ErrPermanent), false, "error", "permanent"}, {errors.New("what?"), false, "error", "_OTHER"},
	} {
		before := r.read(t)
		hooks.StoreOp(le.StoreOp{Kind: le.OpExtend, Err: c.err, Abandoned: c.abandoned, Duration: time.Second})
		want := map[string]float64{"store.operations{extend," + c.outcome + "}": before["store.operations{extend,"+c.outcome+"}"] + 1}
		if c.word != "" {
			want["extension.failures{"+c.word+"}"] = before["extension.failures{"+c.word+"}"] + 1
		}
		r.expect(t, want)
	}
}

// The clock's offset is found to within its uncertainty, whichever way it is off
// and whatever the store's precision.
func TestClockOffset(t *testing.T) {
	for _, off := range []time.Duration{-time.Minute, -300 * time.Millisecond, 0, 2 * time.Second} {
		for _, whole := range []bool{false, true} {
			r := newRig(t, "a", nil)
			start := time.Unix(1e9, 123456789)
			took := 400 * time.Millisecond
			for _, at := range []time.Duration{0, 100 * time.Millisecond, took} {
				commit := start.Add(at).Add(-off)
				if whole {
					commit = commit.Truncate(time.Second)
				}
				r.Trace().StoreOp(le.StoreOp{Kind: le.OpExtend, Start: start, Duration: took, CommitTS: commit})
				got := r.read(t)
				if err := math.Abs(got["clock.offset"] - off.Seconds()); err > got["clock.offset.uncertainty"]+1e-6 || got["clock.offset.uncertainty"] > 0.71 {
					t.Errorf("off by %v: found %v, uncertain by %v", off, got["clock.offset"], got["clock.offset.uncertainty"])
				}
			}
		}
	}
	r := newRig(t, "a", nil)
	r.Trace().StoreOp(le.StoreOp{Kind: le.OpRead, Start: time.Now(), CommitTS: time.Unix(1, 0)})
	r.Trace().StoreOp(le.StoreOp{Kind: le.OpExtend, Start: time.Now()})
	if _, known := r.read(t)["clock.offset"]; known {
		t.Error("an offset was made of a read, or of nothing")
	}
}

// An observer has no LeaderID, and sees how long a hand-over takes.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", nil)
		news := func(id string, number le.ElectionNumber) {
			r.Trace().News(le.RaceEntry{LeaderID: id, ElectionNumber: number, TermLength: T, TermExpiry: time.Now().Add(T)})
		}
		news("a", 1)
		news("", 1)
		time.Sleep(3 * time.Second)
		news("b", 2)
		r.expect(t, map[string]float64{"leaderless.time": 3, "fencing_token": 2, "is_leader": 0})
		if all := r.spans.Ended(); len(all) != 1 || all[0].Name() != "leaderelection.handover" || all[0].EndTime().Sub(all[0].StartTime()) != 3*time.Second {
			t.Errorf("hand-overs: %v", all)
		}
	})
}

// born is the first number of an election that begins with its bubble, in 2000.
const born le.ElectionNumber = 946684800

// Every leadership's end has its cause, also where OnElected had returned long before:
// many candidates only start things there. The status then goes from Leading to
// Following at once, with nothing to drain.
func TestCausesAfterOnElectedHasReturned(t *testing.T) {
	for _, c := range []struct {
		cause string
		end   func(*testing.T, *memory.Decider, *le.Campaign)
	}{
		{"expired", func(_ *testing.T, store *memory.Decider, _ *le.Campaign) { store.Inject(memory.LoseRequests()) }},
		{"ousted", func(_ *testing.T, store *memory.Decider, _ *le.Campaign) {
			store.Replace(&le.RaceEntry{LeaderID: "b", Incarnation: "b", ElectionNumber: born + 1, TermLength: T, TermExpiry: time.Now().Add(T)})
		}},
		{"resigned", func(t *testing.T, _ *memory.Decider, c *le.Campaign) {
			if err := c.Resign(t.Context()); err != nil {
				t.Error(err)
			}
		}},
		{"resigned", func(t *testing.T, store *memory.Decider, _ *le.Campaign) {
			if err := le.StepDown(t.Context(), store.Handle(), false); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(c.cause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				r := newRig(t, "a", nil)
				store := memory.NewDecider()
				var changes []le.StatusChange
				campaign, err := le.Config{
					Decider: store, LeaderID: "a", TermLength: T, MaxClockSkew: S, OnElected: func(context.Context, *le.TimeView) {},
					Trace: le.JoinTraces(r.Trace(), &le.Trace{StatusChanged: func(c le.StatusChange) { changes = append(changes, c) }}),
				}.Start(ctx)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				r.expect(t, map[string]float64{"is_leader": 1, "transitions{won,elected}": 1})
				c.end(t, store, campaign)
				// Until the view has ended, and no longer than nobody else leads.
				time.Sleep(T - S)
				synctest.Wait()
				got := r.read(t)
				if got["is_leader"] != 0 || got["transitions{"+c.cause+",ended}"] != 1 {
					t.Errorf("%v, told of %+v", got, changes)
				}
				for name, n := range got {
					if other := "transitions{" + c.cause + ",ended}"; strings.HasPrefix(name, "transitions{") && name != other && name != "transitions{won,elected}" && n != 0 {
						t.Errorf("%s: %v", name, n)
					}
				}
				for _, change := range changes {
					if change.From == le.Leading && change.Number != born {
						t.Errorf("the end is told as %+v", change)
					}
				}
				store.Inject(nil)
				store.Replace(&le.RaceEntry{LeaderID: "c", Incarnation: "c", ElectionNumber: born + 9, TermLength: T, TermExpiry: time.Now().Add(T)})
				time.Sleep(T)
				synctest.Wait()
				if cause, previous := r.handover(); cause != c.cause || previous != int64(born) {
					t.Errorf("the hand-over's span has cause %q and previous leadership %d", cause, previous)
				}
				cancel()
				<-campaign.Done()
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// handover returns the cause of the first hand-over's span, and the leadership it ended.
func (r *rig) handover() (cause string, previous int64) {
	for _, s := range r.spans.Ended() {
		if s.Name() != "leaderelection.handover" {
			continue
		}
		set := attribute.NewSet(s.Attributes()...)
		c, _ := set.Value("leaderelection.cause")
		p, _ := set.Value("leaderelection.previous_fencing_token")
		return c.AsString(), p.AsInt64()
	}
	return "none", 0
}

// A record whose writer's clock means nothing here is a leader's for a term from
// when it was seen: its expiry, hours away in either direction, does not count.
func TestLeaderlessTimeWithoutClocksInCommon(t *testing.T) {
	for _, ahead := range []time.Duration{-5 * time.Hour, 5 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "", nil)
			trace := r.Trace()
			trace.News(le.RaceEntry{LeaderID: "a", ElectionNumber: 1, Unsynchronized: true, TermLength: T, TermExpiry: time.Now().Add(ahead)})
			time.Sleep(T)
			r.expect(t, map[string]float64{"leaderless.time": 0})
			time.Sleep(T)
			r.expect(t, map[string]float64{"leaderless.time": T.Seconds()})
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A member that owns four shards gives two away when another joins: gauges, counters, and a
// span for each that reaches over its callback's end.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
		g, err := r.telemetry().Member("orders", shard.Config{MemberID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		var records memgroup.Records
		join := func(id string, trace *shard.Trace) *shard.Member {
			m, err := shard.Config{
				Store:    records.Store,
				MemberID: id, Shards: shard.Numbered(4), ShardTrace: trace,
				OnOwned: func(ctx context.Context, _ *shard.Owned) error {
					<-ctx.Done()
					time.Sleep(3 * time.Second)
					return nil
				},
			}.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		a := join("a", g.Trace())
		time.Sleep(time.Minute)
		b := join("b", nil)
		time.Sleep(time.Minute)
		r.expect(t, map[string]float64{
			"shards.owned": 2, "shards.placed": 4, "shards.unowned": 0,
			"shards.taken": 4, "shards.let_go{moved}": 2, "shards.let_go{shutdown}": 0,
		})
		if v := r.read(t)["shards.assignment.version"]; v < 2 {
			t.Errorf("the version is %v", v)
		}
		spans := r.spans.Ended()
		for _, s := range spans {
			if took := s.EndTime().Sub(s.StartTime()); s.Name() != "leaderelection.shard.let_go" || took < 3*time.Second || took > 4*time.Second {
				t.Errorf("span %s took %v, the callback's end 3s", s.Name(), took)
			}
		}
		if len(spans) != 2 {
			t.Errorf("%d spans", len(spans))
		}
		_ = a.Leave(t.Context())
		_ = b.Leave(t.Context())
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}
