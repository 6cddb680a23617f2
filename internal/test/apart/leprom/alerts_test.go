package leprom_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/leprom"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

const (
	dir   = "../../../../adapters/leotel/" // of the rules, and what fires on which series
	every = 15 * time.Second               // of scrapes and evaluations
	end   = 30 * time.Minute
)

// promtool runs the tests of rules that are in a file.
func promtool(t *testing.T, tests string) error {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), stores.Need(t, "promtool"), "test", "rules", tests).CombinedOutput(); err != nil {
		return fmt.Errorf("promtool: %w\n%s", err, out)
	}
	return nil
}

// Each rule fires in its case, when it is to, and in no other.
func TestAlerts(t *testing.T) {
	stores.Nightly(t, "promtool takes ten seconds")
	if err := promtool(t, dir+"alerts_test.yaml"); err != nil {
		t.Error(err)
	}
}

var expected = regexp.MustCompile(`exp_samples: \[\{[^\]]+\]`)

// The cases notice each rule that is broken. A rule is judged alone, since to judge all of them takes long.
func TestBrokenAlerts(t *testing.T) {
	stores.Nightly(t, "promtool runs for each of 36 broken rules")
	cases := read(t, "alerts_test.yaml")
	const begin = "      - alert: "
	rules := strings.Split(read(t, "alerts.yaml"), begin)
	judge := func(t *testing.T, rule string) error {
		name, _, _ := strings.Cut(rule, "\n")
		its := expected.ReplaceAllStringFunc(cases, func(want string) string {
			if strings.Contains(want, `"`+name+`"`) {
				return want
			}
			return "exp_samples: []"
		})
		dir := t.TempDir()
		write(t, filepath.Join(dir, "alerts.yaml"), rules[0]+begin+rule)
		write(t, filepath.Join(dir, "alerts_test.yaml"), its)
		return promtool(t, filepath.Join(dir, "alerts_test.yaml"))
	}
	for _, rule := range rules[1:] {
		if err := judge(t, rule); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []struct{ old, new string }{
		{"present_over_time(leaderelection_is_leader[1d])", "present_over_time(leaderelection_is_leader[1m])"},
		{"> 2 * max by", "> max by"},
		{"> 2 * max by", "> 4 * max by"},
		{"min by (cluster, namespace, leaderelection_election) (last", "max by (cluster, namespace, leaderelection_election) (last"},
		{"last_over_time(leaderelection_term_length_seconds[1m])", "15"},
		{"for: 30s", "for: 0s"},
		{"leaderelection_is_leader[30s]", "leaderelection_is_leader[5m]"},
		{"[30s])) > 1", "[30s])) > 2"},
		{"[10m]))) < 0.3", "[10m]))) < 0.2"},
		{"[10m]))) < 0.3", "[10m]))) < 0.5"},
		{"|unhealthy|", "|shutdown|"},
		{"[30m])) > 3.5", "[30m])) > 3"},
		{"[30m])) > 3.5", "[30m])) > 4.5"},
		{"0.5 * leaderelection_clock_max_skew_seconds", "0.5"},
		{"0.5 * leaderelection_clock_max_skew_seconds", "leaderelection_clock_max_skew_seconds"},
		{"abs(leaderelection_clock_offset_seconds)", "leaderelection_clock_offset_seconds"},
		{"- leaderelection_clock_offset_uncertainty_seconds", ""},
		{"for: 5m", "for: 10m"},
		{"sum by (cluster, namespace, leaderelection_election) (last", "sum by (leaderelection_election) (last"},
		{"> 0)[30m:1m]", ")[30m:1m]"},
		{`"resigned|shutdown"`, `"none"`},
		{"> 3.5 + 2 *", "> 3.5 - 2 *"},
		{"- min_over_time(max by", "- min_over_time(min by"},
		{"or 0 * max by", "or 100 + 0 * max by"},
		{"== 0) < 2", ">= 0) < 2"},
		{"[1d:5m]) > 1", "[1d:5m]) > 0"},
		{"for: 15m", "for: 5m"},
		{`leaderelection_leaderless_seconds{leaderelection_candidate!=""}`, "leaderelection_leaderless_seconds"},
		{"> 3 * max by", "> 2 * max by"},
		{"> 3 * max by", "> 4 * max by"},
		{"hold_seconds[7d]", "hold_seconds[1m]"},
		{"(max_over_time(leaderelection_hold_seconds[7d]) > 0)", "(max_over_time(leaderelection_hold_seconds[7d]))"},
		{"for: 1m\n        labels: {severity: critical}\n        annotations:\n          summary: \"{{ $labels.leaderelection_election }}: the job", "for: 2m\n        labels: {severity: critical}\n        annotations:\n          summary: \"{{ $labels.leaderelection_election }}: the job"},
		{"leaderelection_is_leader[1m]))))\n          unless max by (cluster, namespace, leaderelection_election) (max_over_time(leaderelection_job[8d])) > 0", "leaderelection_is_leader[1m]))))"},
		{"[30m:1m]))\n          unless max by (cluster, namespace, leaderelection_election) (max_over_time(leaderelection_job[8d])) > 0", "[30m:1m]))"},
		{"[1d:5m]) > 1\n          unless max by (cluster, namespace, leaderelection_election) (max_over_time(leaderelection_job[8d])) > 0", "[1d:5m]) > 1"},
	} {
		t.Run(m.new, func(t *testing.T) {
			i := slices.IndexFunc(rules, func(rule string) bool { return strings.Contains(rule, m.old) })
			if i < 1 {
				t.Fatalf("no rule has %q", m.old)
			}
			if judge(t, strings.Replace(rules[i], m.old, m.new, 1)) == nil {
				t.Error("no case notices it")
			}
		})
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(dir + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// process is a candidate, or an observer, with the metrics that it has while it lives.
type process struct {
	namespace string
	store     *memory.Decider
	registry  *prometheus.Registry
	kill      context.CancelFunc
}

// fleet is candidates of one election, and what Prometheus scrapes of them.
type fleet struct {
	t      *testing.T
	store  *memory.Decider
	mu     sync.Mutex
	live   map[string]*process        // nil: it is over
	series map[string]map[int]float64 // by name and labels: the values, by scrape
	at     int
}

// process makes one, and its metrics.
func (f *fleet) process(store *memory.Decider) (*process, *leprom.Metrics, context.Context) {
	ctx, kill := context.WithCancel(f.t.Context())
	p := &process{namespace: "shop", store: store.Handle(), registry: prometheus.NewRegistry(), kill: kill}
	metrics := leprom.New(nil)
	p.registry.MustRegister(metrics)
	return p, metrics, ctx
}

// start starts a candidate, or starts it again. OnElected may be nil. How may change what it is.
func (f *fleet) start(id string, elected func(), how ...func(p *process, c *leaderelection.Config)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live == nil {
		return
	}
	p, metrics, ctx := f.process(f.store)
	config := leaderelection.Config{LeaderID: id, MaxClockSkew: time.Second, OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
		if elected != nil {
			go elected()
		}
		<-ctx.Done()
	}}
	for _, change := range how {
		change(p, &config)
	}
	config.Decider = p.store
	measured, err := metrics.Candidate("orders", config)
	if err != nil {
		f.t.Fatal(err)
	}
	config.Trace = measured.Trace()
	if _, err := config.Start(ctx); err != nil {
		f.t.Fatal(err)
	}
	f.live[id] = p
}

// job is a run of a job that takes 2 s, and keeps others out for 150 s, in a process of its own.
func (f *fleet) job() {
	f.mu.Lock()
	if f.live == nil {
		f.mu.Unlock()
		return
	}
	p, metrics, ctx := f.process(f.store)
	config := leaderelection.Config{Decider: p.store, LeaderID: "job", MaxClockSkew: time.Second}
	measured, err := metrics.Candidate("orders", config)
	if err != nil {
		f.t.Fatal(err)
	}
	config.Trace = measured.Trace()
	f.live["job"] = p
	f.mu.Unlock()
	err = config.Once(ctx, leaderelection.OnceOptions{Hold: 150 * time.Second, Wait: 5 * time.Second}, func(context.Context, *leaderelection.TimeView) error { time.Sleep(2 * time.Second); return nil })
	if err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.live, "job")
}

// jobs runs a job each five minutes, until some time, with an observer.
func (f *fleet) jobs(until time.Duration) {
	f.observe()
	for at := time.Minute; at < until; at += 5 * time.Minute {
		time.AfterFunc(at, f.job)
	}
}

// twoNamespaces has two candidates in each: a, b, and c, d.
func (f *fleet) twoNamespaces() {
	staging := in("staging", memory.NewDecider())
	f.start("a", nil)
	f.start("b", nil)
	f.start("c", nil, staging)
	f.start("d", nil, staging)
}

// observe starts an observer.
func (f *fleet) observe() {
	p, metrics, ctx := f.process(f.store)
	watch := leaderelection.WatchConfig{Decider: p.store, MaxClockSkew: time.Second}
	measured, err := metrics.Observer("orders", watch)
	if err != nil {
		f.t.Fatal(err)
	}
	watch.Trace = measured.Trace()
	go func() { _ = watch.Watch(ctx, func(context.Context, leaderelection.RaceEntry) {}) }()
	f.live["observer"] = p
}

// in has a candidate be in another namespace, whose election is another.
func in(namespace string, store *memory.Decider) func(*process, *leaderelection.Config) {
	return func(p *process, _ *leaderelection.Config) { p.namespace, p.store = namespace, store.Handle() }
}

// fail has something happen to all calls of a candidate, from some time on.
func (f *fleet) fail(id string, after time.Duration, fault memory.Faults) {
	p := f.live[id]
	time.AfterFunc(after, func() { p.store.Inject(fault) })
}

// crash ends a candidate, which does not release, and is not scraped any more.
func (f *fleet) crash(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live == nil {
		return
	}
	f.live[id].store.Inject(memory.LoseRequests())
	f.live[id].kill()
	delete(f.live, id)
}

// scrape takes down what all that live say.
func (f *fleet) scrape() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.live {
		families, err := p.registry.Gather()
		if err != nil {
			f.t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				labels := []string{fmt.Sprintf("namespace=%q", p.namespace)}
				for _, l := range m.GetLabel() {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
				if family.GetType() != dto.MetricType_HISTOGRAM {
					f.sample(family.GetName(), labels, m.GetGauge().GetValue()+m.GetCounter().GetValue())
					continue
				}
				h := m.GetHistogram()
				for _, b := range h.GetBucket() {
					f.sample(family.GetName()+"_bucket", append(labels, fmt.Sprintf("le=\"%g\"", b.GetUpperBound())), float64(b.GetCumulativeCount()))
				}
				f.sample(family.GetName()+"_bucket", append(labels, `le="+Inf"`), float64(h.GetSampleCount()))
			}
		}
	}
	f.at++
}

// sample takes down one value.
func (f *fleet) sample(name string, labels []string, v float64) {
	name += "{" + strings.Join(labels, ",") + "}"
	if f.series[name] == nil {
		f.series[name] = map[int]float64{}
	}
	f.series[name][f.at] = v
}

// tests are promtool's: of the series, with the alerts that they fire.
func (f *fleet) tests(rules string, want []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rule_files: [%s]\nevaluation_interval: %v\ntests:\n  - interval: %[2]v\n    input_series:\n", rules, every)
	for _, name := range slices.Sorted(maps.Keys(f.series)) {
		fmt.Fprintf(&b, "      - {series: '%s', values: '", name)
		for i := range f.at {
			if v, there := f.series[name][i]; there {
				fmt.Fprintf(&b, " %f", v)
			} else {
				b.WriteString(" _")
			}
		}
		b.WriteString("'}\n")
	}
	fmt.Fprintf(&b, "    promql_expr_test:\n      - expr: group by (alertname) (last_over_time(ALERTS{alertstate=\"firing\"}[%v]))\n        eval_time: %[1]v\n        exp_samples:\n", end)
	for _, name := range want {
		fmt.Fprintf(&b, "          - {labels: '{alertname=\"%s\"}', value: 1}\n", name)
	}
	return b.String()
}

// The rules on what leprom says of real campaigns, in half an hour of virtual time. Each of them
// fires in one case at least.
func TestAlertsOnRealOutput(t *testing.T) {
	stores.Nightly(t, "promtool takes a second for each of 14 cases")
	seen := map[string]bool{}
	for name, c := range map[string]struct {
		run  func(f *fleet)
		want []string
	}{
		"all is well": {func(f *fleet) { f.start("a", nil); f.start("b", nil) }, nil},
		"leaders die 5 s after each election": {func(f *fleet) {
			var elected func(id string) func()
			elected = func(id string) func() {
				return func() {
					time.Sleep(5 * time.Second)
					f.crash(id)
					time.Sleep(10 * time.Second)
					f.start(id, elected(id))
				}
			}
			f.start("a", elected("a"))
			f.start("b", elected("b"))
		}, []string{"ElectionUnstable"}},
		"one crash": {func(f *fleet) {
			f.start("a", nil)
			f.start("b", nil)
			go func() {
				time.Sleep(5 * time.Minute)
				f.crash("a")
				time.Sleep(30 * time.Second)
				f.start("a", nil)
			}()
		}, nil},
		"the leader has crashed, and stays away": {func(f *fleet) {
			f.start("a", nil)
			time.Sleep(time.Second)
			f.start("b", nil)
			go func() { time.Sleep(5 * time.Minute); f.crash("a") }()
		}, []string{"ElectionStandbyLost"}},
		"no candidate reaches the store": {func(f *fleet) {
			for _, id := range []string{"a", "b"} {
				f.start(id, nil)
				f.fail(id, 5*time.Minute, memory.LoseRequests())
			}
		}, []string{"ElectionWithoutLeader"}},
		"all have crashed": {func(f *fleet) {
			for _, id := range []string{"a", "b"} {
				f.start(id, nil)
				time.AfterFunc(5*time.Minute, func() { f.crash(id) })
			}
		}, []string{"ElectionWithoutLeader"}},
		"nobody leads in one of two namespaces": {func(f *fleet) {
			f.twoNamespaces()
			f.fail("c", 5*time.Minute, memory.LoseRequests())
			f.fail("d", 5*time.Minute, memory.LoseRequests())
		}, []string{"ElectionWithoutLeader"}},
		"two namespaces": {(*fleet).twoNamespaces, nil},
		"two elections have one name": {func(f *fleet) {
			f.start("a", nil)
			f.start("b", nil, in("shop", memory.NewDecider()))
		}, []string{"ElectionWithSeveralLeaders"}},
		"leaders are unhealthy again and again": {func(f *fleet) {
			for _, id := range []string{"a", "b"} {
				f.start(id, nil, func(_ *process, c *leaderelection.Config) {
					c.Healthy = func(context.Context) error {
						if time.Now().Minute()%2 == 1 {
							return errors.New("not well")
						}
						return nil
					}
				})
			}
		}, []string{"ElectionUnstable"}},
		"the leader's clock is 700 ms ahead": {func(f *fleet) {
			time.Sleep(123456789) // else the store's times seem to be whole seconds
			f.start("a", nil, func(_ *process, c *leaderelection.Config) { c.Clock = clocks.NewOffset(nil, 700*time.Millisecond) })
			time.Sleep(time.Second)
			f.start("b", nil)
		}, []string{"ElectionClockOff"}},
		"the store answers for two seconds in eleven": {func(f *fleet) {
			for _, id := range []string{"a", "b"} {
				f.start(id, nil)
				f.fail(id, 5*time.Minute, func(memory.Op) (fault memory.Fault) {
					if time.Now().Unix()%11 > 1 {
						fault.Err = memory.ErrLost
					}
					return fault
				})
			}
		}, []string{"ElectionLeaseRunningLow"}},
		"a job runs each five minutes": {func(f *fleet) { f.jobs(30 * time.Minute) }, nil},
		"a job does not run any more":  {func(f *fleet) { f.jobs(10 * time.Minute) }, []string{"ElectionJobMissed"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "real.yaml")
			rules, err := filepath.Abs(dir + "alerts.yaml")
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{t: t, store: memory.NewDecider(), live: map[string]*process{}, series: map[string]map[int]float64{}}
				c.run(f)
				for range int(end/every) + 1 {
					time.Sleep(every - time.Millisecond)
					synctest.Wait()
					f.scrape()
					time.Sleep(time.Millisecond)
				}
				f.mu.Lock()
				for _, p := range f.live {
					p.kill()
				}
				f.live = nil
				f.mu.Unlock()
				time.Sleep(time.Minute) // until all of it has ended
				write(t, file, f.tests(rules, c.want))
			})
			if err := promtool(t, file); err != nil {
				t.Error(err)
			}
			for _, name := range c.want {
				seen[name] = true
			}
		})
	}
	if len(seen) != 7 {
		t.Errorf("only %v have fired", seen)
	}
}
