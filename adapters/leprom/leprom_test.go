package leprom_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/leprom"
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

// rig is a Metrics that is registered.
type rig struct {
	*leprom.Metrics
	registry *prometheus.Registry
}

func newRig() *rig { return newRigWith(nil) }

func newRigWith(o *leprom.Options) *rig {
	r := &rig{leprom.New(o), prometheus.NewPedanticRegistry()}
	r.registry.MustRegister(r.Metrics)
	return r
}

// read returns each series as "election/candidate name{further label values}" and its
// value; of a histogram the count, and as name_sum the sum.
func (r *rig) read(t *testing.T) map[string]float64 {
	t.Helper()
	families := must(r.registry.Gather())(t)
	series := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var more []string
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
				if l.GetName() != "leaderelection_election" && l.GetName() != "leaderelection_candidate" {
					more = append(more, l.GetValue())
				}
			}
			name := labels["leaderelection_election"] + "/" + labels["leaderelection_candidate"] + " " + strings.TrimPrefix(f.GetName(), "leaderelection_")
			suffix := ""
			if len(more) > 0 {
				suffix = "{" + strings.Join(more, ",") + "}"
			}
			if h := m.GetHistogram(); h != nil {
				series[name+suffix], series[name+"_sum"+suffix] = float64(h.GetSampleCount()), h.GetSampleSum()
			} else {
				series[name+suffix] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return series
}

// expect checks series of one candidate.
func (r *rig) expect(t *testing.T, of string, want map[string]float64) {
	t.Helper()
	full := map[string]float64{}
	for name, v := range want {
		full[of+" "+name] = v
	}
	measuretest.Expect(t, r.read(t), full)
}

// count is how many series there are, each bucket being one.
func (r *rig) count(t *testing.T) (n int) {
	t.Helper()
	families := must(r.registry.Gather())(t)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n++
			if h := m.GetHistogram(); h != nil {
				n += len(h.GetBucket()) + 2 // +Inf, and the sum beside the count
			}
		}
	}
	return n
}

// A whole life: elected, extended, the store gone, expired, nobody leading, elected again,
// and closed.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		store := memory.NewDecider()
		first := float64(time.Now().Unix()) // the number of a record that is new
		hooked := 0
		config := le.Config{
			Decider: store, LeaderID: "a", TermLength: T, MaxClockSkew: S,
			OnElected: func(ctx context.Context, _ *le.TimeView) { <-ctx.Done() },
		}
		election := must(r.Candidate("orders", config))(t)
		config.Trace = le.JoinTraces(election.Trace(), &le.Trace{StoreOp: func(le.StoreOp) { hooked++ }})
		ctx, cancel := context.WithCancel(t.Context())
		campaign := must(config.Start(ctx))(t)
		synctest.Wait()
		r.expect(t, "orders/a", map[string]float64{
			"is_leader": 1, "fencing_token": first, "view_remaining_seconds": 14, "transitions_total{won,elected}": 1, "transitions_total{expired,ended}": 0,
			"store_operations_total{acquire,ok}": 1, "store_operation_duration_seconds{acquire,ok}": 1, "term_length_seconds": 15, "clock_max_skew_seconds": 1,
			"leaderless_seconds": 0, "clock_offset_seconds": -0.5, "clock_offset_uncertainty_seconds": 0.5, "clock_skews_total": 0, "duplicate_ids_total": 0,
			"feed_events_total{started}": 1, "feed_events_total{failed}": 0,
		})
		time.Sleep(20 * time.Second) // extensions at 7 and 14 s
		synctest.Wait()
		r.expect(t, "orders/a", map[string]float64{
			"view_remaining_seconds": 8, "store_operations_total{extend,ok}": 2, "extension_duration_seconds": 2, "extension_reserve_seconds": 2,
			"extension_reserve_seconds_sum": 14, "extension_reserve_ratio": 2, "extension_reserve_ratio_sum": 1, "leaderless_time_seconds_total": 0,
		})
		store.Inject(memory.LoseRequests())
		time.Sleep(30 * time.Second)
		synctest.Wait()
		r.expect(t, "orders/a", map[string]float64{
			"is_leader": 0, "view_remaining_seconds": 0, "transitions_total{expired,ended}": 1, "leaderless_time_seconds_total": 50 - 29, "leaderless_seconds": 50 - 29,
		})
		if got := r.read(t); got["orders/a extension_failures_total{_OTHER}"] < 1 || got["orders/a store_operations_total{read,error}"] < 1 {
			t.Errorf("failures: %v", got)
		}
		store.Inject(nil)
		time.Sleep(10 * time.Second)
		r.expect(t, "orders/a", map[string]float64{"is_leader": 1, "fencing_token": first + 1, "transitions_total{won,elected}": 2, "leaderless_seconds": 0})
		cancel()
		<-campaign.Done()
		synctest.Wait()
		r.expect(t, "orders/a", map[string]float64{"is_leader": 0, "transitions_total{shutdown,ended}": 1, "store_operations_total{release,ok}": 1})
		if hooked == 0 {
			t.Error("the Config's own hooks were not called")
		}
		election.Close()
		election.Close()
		if left := r.read(t); len(left) != 0 {
			t.Errorf("after Close there is still %v", left)
		}
	})
}

// Nobody leads from the last one's end, and before anything is known from the beginning; a
// record's expiry that lies hours ahead hides nothing.
func TestLeaderless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		observer := must(r.Observer("orders", le.WatchConfig{Decider: memory.NewDecider(), MaxClockSkew: S}))(t)
		expect := func(now, all float64) {
			t.Helper()
			r.expect(t, "orders/", map[string]float64{"leaderless_seconds": now, "leaderless_time_seconds_total": all})
		}
		news := func(id string, number le.ElectionNumber, extension uint64, expiry time.Duration) {
			observer.Trace().News(le.RaceEntry{LeaderID: id, ElectionNumber: number, Extension: extension, TermLength: T, TermExpiry: time.Now().Add(expiry)})
		}
		time.Sleep(5 * time.Second)
		expect(5, 0)
		news("a", 1, 0, -72*time.Hour) // a fleet that was away: since this one looks
		expect(5, 0)
		news("a", 2, 0, T)
		expect(0, 0)
		time.Sleep(T + 2*time.Second)
		expect(2, 2)
		news("b", 3, 0, T)
		expect(0, 2)
		time.Sleep(T + 3*time.Second)
		news("", 3, 1, 0) // too late: nobody has led for three seconds
		time.Sleep(time.Second)
		expect(4, 6)
		news("c", 4, 0, T)
		time.Sleep(time.Second)
		news("", 4, 1, 0)
		time.Sleep(time.Second)
		expect(1, 7)
		news("d", 5, 0, 1000*time.Hour)
		time.Sleep(T + 2*S)
		expect(0, 7)
		time.Sleep(time.Minute)
		expect(60, 67)
	})
}

// An observer is measured by its own clock, and by the skew that was agreed on.
func TestObserverSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := clocks.NewOffset(clocks.System(), -time.Hour)
		for name, c := range map[string]struct {
			watch                   le.WatchConfig
			skew, leaderless, after float64
		}{
			"default":  {le.WatchConfig{}, 1, 0, 5},
			"own":      {le.WatchConfig{MaxClockSkew: 3 * time.Second}, 3, 0, 5},
			"shared":   {le.WatchConfig{ClockPolicy: le.SharedClock}, 0, 0, 5},
			"its time": {le.WatchConfig{Clock: behind}, 1, 0, 5},
		} {
			r := newRig()
			observer := must(r.Observer("orders", c.watch))(t)
			clock := c.watch.Clock
			if clock == nil {
				clock = clocks.System()
			}
			observer.Trace().News(le.RaceEntry{LeaderID: "a", ElectionNumber: 1, TermLength: T, TermExpiry: clock.Now().Add(T)})
			time.Sleep(T - time.Second)
			t.Log(name, "clock")
			r.expect(t, "orders/", map[string]float64{"clock_max_skew_seconds": c.skew, "leaderless_seconds": c.leaderless})
			time.Sleep(6 * time.Second)
			r.expect(t, "orders/", map[string]float64{"leaderless_seconds": c.after})
		}
	})
}

// Elections of one process are told apart by their names, refused if they cannot be, and
// leave nothing behind, whatever their campaigns still tell.
func TestManyElections(t *testing.T) {
	r := newRig()
	hooks := map[string]*le.Trace{}
	var elections []*leprom.Election
	add := func(election, id string) {
		t.Helper()
		e := must(r.Candidate(election, le.Config{LeaderID: id}))(t)
		hooks[election+"/"+id] = e.Trace()
		elections = append(elections, e)
	}
	add("orders", "a")
	add("orders", "b")
	add("billing", "a")
	observer := must(r.Observer("orders", le.WatchConfig{}))(t)
	if _, err := r.Candidate("orders", le.Config{LeaderID: "a"}); err == nil || !strings.Contains(err.Error(), `"orders"`) {
		t.Errorf("a candidate twice: %v", err)
	}
	if _, err := r.Observer("orders", le.WatchConfig{}); err == nil {
		t.Error("an observer twice")
	}
	hooks["billing/a"].StatusChanged(le.StatusChange{To: le.Leading, Number: 7})
	r.expect(t, "orders/a", map[string]float64{"transitions_total{won,elected}": 0})
	r.expect(t, "billing/a", map[string]float64{"transitions_total{won,elected}": 1})
	elections[2].Close()
	hooks["billing/a"].StoreOp(le.StoreOp{Kind: le.OpRelease})
	hooks["billing/a"].Feed(le.FeedEvent{})
	for name := range r.read(t) {
		if strings.HasPrefix(name, "billing") {
			t.Errorf("%s is left", name)
		}
	}
	r.expect(t, "orders/b", map[string]float64{"transitions_total{won,elected}": 0})
	r.expect(t, "orders/", map[string]float64{"leaderless_time_seconds_total": 0})
	add("billing", "a") // again
	r.expect(t, "billing/a", map[string]float64{"transitions_total{won,elected}": 0})
	observer.Close()
	for _, e := range elections {
		e.Close()
	}
	if left := r.read(t); len(left) != 0 {
		t.Errorf("left: %v", slices.Collect(maps.Keys(left)))
	}
	add("\xff", "\xfe") // no UTF-8: no reason for a panic, nor for a failed scrape
	if len(r.read(t)) == 0 {
		t.Error("not measured")
	}
}

// However much goes wrong, a candidate has no more series than the documentation says, with histograms and
// without: then everything else is there. And names, units and help texts are as Prometheus wants them.
func TestCardinalityAndConventions(t *testing.T) {
	with, without := newRig(), newRigWith(&leprom.Options{NoHistograms: true})
	for r, c := range map[*rig]struct{ least, most int }{with: {200, 500}, without: {44, 44}} {
		e := must(r.Candidate("orders", le.Config{LeaderID: "a"}))(t)
		quiet := r.count(t)
		measuretest.Everything(e.Trace())
		if most := r.count(t); most > c.most || most < c.least || quiet > 50 {
			t.Errorf("%d series at first, %d at most: say so in the documentation", quiet, most)
		}
	}
	all, few := with.read(t), without.read(t)
	for name := range all {
		if _, there := few[name]; !there && !strings.Contains(name, "duration_seconds") && !strings.Contains(name, "extension_reserve") {
			t.Errorf("%s is left out", name)
		}
	}
	problems := must(promlint.NewWithMetricFamilies(must(with.registry.Gather())(t)).Lint())(t)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Of clocks that nobody compares no offset is told: an alert would be false.
func TestNoOffsetOfClocksThatAreNotCompared(t *testing.T) {
	for name, c := range map[string]struct {
		config     le.Config
		term, skew float64 // by which the alerts judge: the Config's, or its defaults
		told       bool
	}{
		"shared":         {le.Config{ClockPolicy: le.SharedClock}, 15, 0, false},
		"unsynchronized": {le.Config{ClockPolicy: le.Unsynchronized}, 15, 1, false},
		"compared":       {le.Config{}, 15, 1, true},
		"its own":        {le.Config{TermLength: 2 * time.Second, MaxClockSkew: 100 * time.Millisecond}, 2, 0.1, true},
	} {
		r := newRig()
		c.config.LeaderID = "a"
		e := must(r.Candidate("orders", c.config))(t)
		e.Trace().StoreOp(le.StoreOp{Kind: le.OpExtend, Start: time.Now(), CommitTS: time.Now().Add(-time.Hour)})
		if _, told := r.read(t)["orders/a clock_offset_seconds"]; told != c.told {
			t.Errorf("%s: %v", name, told)
		}
		r.expect(t, "orders/a", map[string]float64{"clock_max_skew_seconds": c.skew, "term_length_seconds": c.term})
	}
}

// A candidate says that it is a job's as soon as it campaigns: the alerts must know it between the runs.
func TestCandidateOfAJob(t *testing.T) {
	for name, c := range map[string]struct {
		begin     func(le.Config) error
		job, hold float64
	}{
		"Run": {func(c le.Config) error {
			return c.Run(context.Background(), func(context.Context, *le.TimeView) error { return nil })
		}, 1, 0},
		"Once": {func(c le.Config) error {
			return c.Once(context.Background(), le.OnceOptions{Hold: time.Hour, HoldOnSuccess: true}, func(context.Context, *le.TimeView) error { return errors.New("the job has failed") })
		}, 1, 3600},
		"Start": {func(c le.Config) error {
			ctx, stop := context.WithCancel(context.Background())
			campaign, err := c.Start(ctx)
			if stop(); err == nil {
				<-campaign.Done()
			}
			return err
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig()
				config := le.Config{Decider: memory.NewDecider(), LeaderID: "a", Logger: slog.New(slog.DiscardHandler)}
				e := must(r.Candidate("orders", config))(t)
				config.Trace = e.Trace()
				_ = c.begin(config)
				synctest.Wait()
				r.expect(t, "orders/a", map[string]float64{"job": c.job, "hold_seconds": c.hold})
			})
		})
	}
}

// A job's election is told by its hold: the most that is seen of a run, since a record has only
// what is left. A run that is too short to be seen is one.
func TestJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		observer := must(r.Observer("orders", le.WatchConfig{}))(t)
		news := observer.Trace().News
		is := func(hold, leaderless float64) {
			t.Helper()
			r.expect(t, "orders/", map[string]float64{"job": min(hold, 1), "hold_seconds": hold, "leaderless_seconds": leaderless})
		}
		record := func(n uint64, id string, hold time.Duration) le.RaceEntry {
			e := le.RaceEntry{LeaderID: id, ElectionNumber: le.ElectionNumber(n), TermLength: T, TermExpiry: time.Now(), Hold: hold}
			if id != "" {
				e.TermExpiry = e.TermExpiry.Add(T)
			}
			return e
		}
		news(record(1, "a", time.Hour-T))
		is(3600, 0)
		time.Sleep(10 * time.Second)
		news(record(1, "a", time.Hour-T-10*time.Second))
		time.Sleep(5 * time.Second)
		news(record(1, "", time.Hour-15*time.Second))
		time.Sleep(time.Hour)
		is(3600, 3600)
		unseen := record(2, "", 30*time.Minute)
		time.Sleep(10 * time.Second)
		news(unseen)
		is(1800, 10)
		unseen = record(3, "", 0)
		unseen.Unsynchronized = true
		time.Sleep(10 * time.Second)
		news(unseen)
		is(0, 0)
		ahead := record(4, "", 0)
		ahead.TermExpiry = ahead.TermExpiry.Add(time.Hour)
		news(ahead)
		time.Sleep(10 * time.Second)
		is(0, 10)
	})
}

// Two members share six shards, and one leaves: what each of them has, and what both know of
// the group.
func TestMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		var records memgroup.Records
		join := func(id string) (*shard.Member, func()) {
			cfg := shard.Config{
				Store:    records.Store,
				MemberID: id, Shards: shard.Numbered(6), OnOwned: func(ctx context.Context, _ *shard.Owned) error { <-ctx.Done(); return nil },
			}
			g := must(r.Member("orders", cfg))(t)
			if _, err := r.Member("orders", cfg); err == nil {
				t.Error("measured twice")
			}
			cfg.ShardTrace = g.Trace()
			m := must(cfg.Start(t.Context()))(t)
			return m, g.Close
		}
		a, closeA := join("a")
		time.Sleep(time.Minute)
		b, closeB := join("b")
		time.Sleep(time.Minute)
		r.expect(t, "orders/a", map[string]float64{
			"shards_owned": 3, "shards_placed": 6, "shards_unowned": 0, "shards_moving": 0, "shards_failing": 0, "shards_taken_total": 6, "shards_let_go_total{moved}": 3,
		})
		r.expect(t, "orders/b", map[string]float64{"shards_owned": 3, "shards_taken_total": 3, "shards_let_go_total{moved}": 0})
		if v := r.read(t)["orders/a shards_assignment_version"]; v < 2 {
			t.Errorf("version %v", v)
		}
		_ = a.Leave(t.Context())
		time.Sleep(time.Minute)
		r.expect(t, "orders/a", map[string]float64{"shards_owned": 0, "shards_let_go_total{shutdown}": 3})
		r.expect(t, "orders/b", map[string]float64{"shards_owned": 6, "shards_taken_total": 6})
		_ = b.Leave(t.Context())
		time.Sleep(time.Second)
		closeA()
		closeB()
		closeB()
		for series := range r.read(t) {
			t.Errorf("left behind: %s", series)
		}
	})
}

// A candidate with metrics. A real program serves the registry's with promhttp.
func Example() {
	registry := prometheus.NewRegistry()
	metrics := leprom.New(nil) // one for all elections of the process
	registry.MustRegister(metrics)

	told := make(chan struct{})
	config := le.Config{
		Decider:   memory.NewDecider(), // a real program uses a store that all can reach
		LeaderID:  "worker-7",
		OnElected: func(context.Context, *le.TimeView) {},
	}
	election, err := metrics.Candidate("orders", config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer election.Close()
	config.Trace = le.JoinTraces(election.Trace(), &le.Trace{
		StatusChanged: func(c le.StatusChange) {
			if c.To == le.Leading {
				close(told)
			}
		},
	})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	campaign, err := config.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	<-told
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == "leaderelection_is_leader" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	cancel()
	<-campaign.Done()
	// Output: leaderelection_is_leader 1
}
