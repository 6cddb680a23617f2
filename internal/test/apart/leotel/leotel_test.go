package leotel_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/c8e606e4/leaderelection/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	T = measuretest.T
	S = measuretest.S
)

// must is for what has to work: must(f())(t) is the result of f.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

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

// A whole life: elected, extended, the store gone, expired, elected again, resigned, and another takes over. (What
// is measured in it: TestMetrics of leprom, and TestLepromAndLeotelAreTheSame.)
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		r := newRig(t, "a", nil)
		store := d.Handle()
		var hooked int
		ctx, cancel := context.WithCancel(t.Context())
		campaign := must(le.Config{
			Decider: store, LeaderID: "a", TermLength: T, MaxClockSkew: S,
			OnElected: func(ctx context.Context, _ *le.TimeView) { <-ctx.Done() },
			Trace:     le.JoinTraces(r.Trace(), &le.Trace{StoreOp: func(le.StoreOp) { hooked++ }}),
		}.Start(ctx))(t)
		time.Sleep(20 * time.Second)
		store.Inject(memory.LoseRequests())
		time.Sleep(30 * time.Second)
		store.Inject(nil)
		time.Sleep(10 * time.Second)
		r.expect(t, map[string]float64{"is_leader": 1, "transitions{won,elected}": 2, "transitions{expired,ended}": 1})
		other := must(le.Config{
			Decider: d.Handle(), LeaderID: "b", TermLength: T, MaxClockSkew: S, OnElected: func(context.Context, *le.TimeView) {},
		}.Start(ctx))(t)
		if err := campaign.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		cancel()
		<-campaign.Done()
		<-other.Done()
		seen := map[string]bool{}
		for _, s := range r.spans.Ended() {
			seen[strings.TrimPrefix(s.Name(), "leaderelection.")+" "+s.Status().Code.String()] = true
			if s.EndTime().Before(s.StartTime()) {
				t.Errorf("span %v", s)
			}
		}
		for _, want := range []string{"acquire Unset", "extend Unset", "extend Error", "release Unset", "handover Unset"} {
			if !seen[want] {
				t.Errorf("no span %q in %v", want, seen)
			}
		}
		if hooked == 0 {
			t.Error("the caller's own hooks were not called")
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, still := r.read(t)["is_leader"]; still {
			t.Error("gauges are reported after Close")
		}
	})
}

// A hand-over reaches from the vacancy to the next leader's record.
func TestHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", nil)
		e := le.RaceEntry{LeaderID: "a", ElectionNumber: 1, TermLength: T, TermExpiry: time.Now().Add(T)}
		r.Trace().News(e)
		time.Sleep(5 * time.Second)
		e.LeaderID, e.Extension = "", 1
		r.Trace().News(e)
		time.Sleep(3 * time.Second)
		r.Trace().News(le.RaceEntry{LeaderID: "b", ElectionNumber: 2, TermLength: T, TermExpiry: time.Now().Add(T)})
		cause, previous := r.handover()
		if spans := r.spans.Ended(); len(spans) != 1 || cause != "resigned" || previous != 1 || spans[0].EndTime().Sub(spans[0].StartTime()) != 3*time.Second {
			t.Errorf("%v, of cause %q, after %d", spans, cause, previous)
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
				campaign := must(le.Config{
					Decider: store, LeaderID: "a", TermLength: T, MaxClockSkew: S, OnElected: func(context.Context, *le.TimeView) {},
					Trace: le.JoinTraces(r.Trace(), &le.Trace{StatusChanged: func(c le.StatusChange) { changes = append(changes, c) }}),
				}.Start(ctx))(t)
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

// What a member lets go has a span that reaches over its callback's end. (What is measured of a member:
// TestMember of leprom.)
func TestGroup(t *testing.T) {
	r := &rig{reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	g := must(r.telemetry().Member("orders", shard.Config{MemberID: "a"}))(t)
	asked := time.Now()
	g.Trace().Owns(shard.Owns{})
	g.Trace().LetGo(shard.LetGo{Owned: new(shard.Owned), Cause: shard.ErrMoved, Asked: asked, Time: asked.Add(3 * time.Second)})
	r.expect(t, map[string]float64{"shards.owned": 0, "shards.taken": 1, "shards.let_go{moved}": 1, "shards.let_go{shutdown}": 0})
	if spans := r.spans.Ended(); len(spans) != 1 || spans[0].Name() != "leaderelection.shard.let_go" || spans[0].EndTime().Sub(spans[0].StartTime()) != 3*time.Second {
		t.Errorf("spans %v", spans)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, still := r.read(t)["shards.owned"]; still {
		t.Error("gauges are reported after Close")
	}
}
