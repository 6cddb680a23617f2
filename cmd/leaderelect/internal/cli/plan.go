package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/plan"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

type planFlags struct {
	plan.Choice
	store, svg string
	latency    time.Duration
	asJSON     bool
}

func (a *app) planCommand() *cobra.Command {
	var f planFlags
	var names []string
	for _, s := range plan.Stores {
		names = append(names, s.Name)
	}
	c := &cobra.Command{
		Use:   "plan",
		Short: "Say what a choice of --term, --skew and store means, before anyone runs it",
		Long: `Run elections in virtual time, the real campaign on an imitated store, and print how
long nobody leads after a crash and during a hand-over, the longest outage of the
store that no leader is lost to (one in which nothing answers), store operations and
their price at list prices (looked over on ` + plan.PricesAsOf + `; by what, it says), and what
is bad about the choice.

Candidates' clocks are spread over all that --skew allows; well-kept clocks are closer
together, and their fail-overs closer to the median. With --unsynchronized they
are hours apart.`,
		Example: `  leaderelect plan --term 10s --skew 100ms --candidates 5 --store dynamodb --svg timeline.svg`,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.plan(&f, names) },
	}
	c.Flags().StringVar(&f.store, "store", "gs", "one of "+strings.Join(names, ", ")+", or a URL")
	a.choices(c, "store", names...)
	c.Flags().IntVar(&f.Candidates, "candidates", 3, "how many processes contest the election")
	c.Flags().IntVar(&f.Observers, "observers", 0, "how many only follow it")
	c.Flags().DurationVar(&f.latency, "latency", 0, "of a store request (default a rule of thumb for the store)")
	c.Flags().IntVar(&f.Trials, "trials", 200, "how many crashes, and hand-overs, to try")
	c.Flags().Uint64Var(&f.Seed, "seed", 0, "of the trials' randomness (default a new one)")
	c.Flags().StringVar(&f.svg, "svg", "", "draw the timeline of a crash into this file")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

func (a *app) plan(f *planFlags, names []string) error {
	kind := plan.Lookup(store.Kind(f.store))
	switch {
	case kind == nil:
		return usage("--store is %q, want one of %s", f.store, strings.Join(names, ", "))
	case f.Candidates < 2 || f.Candidates > 50:
		return usage("--candidates is %d, want 2 to 50: one alone has nobody to take over", f.Candidates)
	case f.Observers < 0, f.latency < 0:
		return usage("--observers and --latency must not be negative")
	case f.Trials < 1 || f.Trials > 10000:
		return usage("--trials is %d, want 1 to 10000", f.Trials)
	}
	a.begun(exitError)
	f.Store, f.Term, f.Skew, f.Poll = *kind, a.common.term, a.common.skew, a.common.poll
	f.Unsynchronized = a.common.unsynchronized
	if f.latency > 0 {
		f.Store.Latency = f.latency
	}
	if f.Seed == 0 {
		f.Seed = rand.Uint64()
	}
	r, err := f.Choice.Run()
	if err != nil {
		return fmt.Errorf("running elections in virtual time: %w; the term is too short for a store this slow", err)
	}
	if f.svg != "" {
		err = os.WriteFile(f.svg, []byte(f.SVG(r)), 0o644)
	}
	if f.asJSON {
		return errors.Join(err, a.planJSON(f, r))
	}
	return errors.Join(err, a.planText(f, r))
}

func (a *app) planJSON(f *planFlags, r *plan.Result) error {
	seconds := func(s plan.Spread) map[string]float64 {
		return map[string]float64{"min": s.Min.Seconds(), "median": s.Median.Seconds(), "p99": s.P99.Seconds(), "max": s.Max.Seconds()}
	}
	return json.NewEncoder(a.out).Encode(map[string]any{
		"crash_seconds": seconds(r.Crash), "hand_over_seconds": seconds(r.HandOver), "outage_survived_seconds": r.Outage.Seconds(),
		"writes_per_hour": r.Writes, "reads_per_hour": r.Reads, "dollars_per_month": r.Cost, "prices_as_of": plan.PricesAsOf, "prices_of": f.Store.Pricing, "prices_checked": f.Store.Checked,
		"warnings": append([]string{}, f.Warnings(r)...), "seed": f.Seed,
	})
}

func (a *app) planText(f *planFlags, r *plan.Result) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	how := "standbys poll"
	if f.Store.Pushes {
		how = "pushes changes"
	}
	skew := fmt.Sprintf("skew %v", f.Skew)
	if f.Unsynchronized {
		skew = fmt.Sprintf("unsynchronized clocks that run apart by %v a term at most", max(f.Skew, f.Term/100))
	}
	p("term %v, %s, %d candidates, %d observers, on %s (%s, %v a request)", f.Term, skew, f.Candidates, f.Observers, f.Store.Name, how, f.Store.Latency)
	p("")
	p("%-34s %9s %9s %9s %9s", "nobody leads for", "minimum", "median", "99th", "maximum")
	row := func(name string, s plan.Spread) {
		p("%-34s %9v %9v %9v %9v", name, short(s.Min), short(s.Median), short(s.P99), short(s.Max))
	}
	row("after a crash", r.Crash)
	row("when the leader goes by choice", r.HandOver)
	p("")
	p("outage of the store survived       %v", short(r.Outage))
	if t, err := runner.TimesFor(f.Term, f.Skew, 0); err == nil {
		p("grace for a command that runs      %v", short(t.Grace))
	}
	p("store operations an hour           %.0f writes, %.0f reads", r.Writes, r.Reads)
	if f.Store.Pricing != "" {
		p("price a month                      $%.2f (list prices, looked over on %s)", r.Cost, plan.PricesAsOf)
		p("                                   %s", f.Store.Pricing)
		p("                                   %s", f.Store.Checked)
	} else {
		p("price a month                      none by the request: one pays for the server")
	}
	for _, w := range f.Warnings(r) {
		p("\nwarning: %s", w)
	}
	p("\n%d trials of each in virtual time, --seed %d", f.Trials, f.Seed)
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

// short is d without needless digits.
func short(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond / 10)
}
