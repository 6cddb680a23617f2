package cli

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/plan"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

type planFlags struct {
	plan.Choice
	store   string
	latency time.Duration
	grace   time.Duration
	asJSON  bool
}

func (a *app) planCommand() *cobra.Command {
	var f planFlags
	var names []string
	for _, s := range plan.Stores {
		names = append(names, s.Name)
	}
	c := &cobra.Command{
		Use:   "plan",
		Short: "Say what a choice of --term, --skew and store means",
		Long: `Work out how long nobody leads after a crash and after a leader has given up by choice,
the longest outages of the store that no leader is lost to, the store operations of a
month of 730 hours, and what is bad about the choice.

The shortest and longest times are those with candidates' clocks as far apart as --skew
allows. If only the leader's process crashes, and has a lifeline, a candidate on its machine
leads at once. With --clocks unsynchronized no clocks
are compared. With --extend-every a leader extends its lease more often, to survive longer
outages. That costs writes.

A command must end before the view does, by --grace. So its lease is extended more often. A
leader survives shorter outages if requests are lost than if the responses are late.`,
		Example: `  leaderelect plan --term 10s --skew 100ms --candidates 5 --store dynamodb`,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.plan(&f, names) },
	}
	c.Flags().StringVar(&f.store, "store", "gs", "one of "+strings.Join(names, ", ")+", or a URL")
	choices(c, "store", names...)
	c.Flags().IntVar(&f.Candidates, "candidates", 3, "how many processes campaign in the election; add those that only follow it, which cost the store what a standby costs")
	c.Flags().DurationVar(&f.latency, "latency", 0, "of a store request (default a rule of thumb for the store)")
	c.Flags().DurationVar(&f.grace, "grace", 0, "of run, for a command to end in (default a quarter of the term less the skew, 10s at most)")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

func (a *app) plan(f *planFlags, names []string) error {
	kind := plan.Lookup(store.Kind(f.store))
	switch {
	case kind == nil:
		return usage("--store is %q, want one of %s", f.store, strings.Join(names, ", "))
	case f.Candidates < 2:
		return usage("--candidates is %d, want 2 at least: one alone has nobody to take over", f.Candidates)
	case f.latency < 0:
		return usage("--latency is %v, must not be negative", f.latency)
	}
	a.begun(exitError)
	f.Store, f.Term, f.Skew, f.Poll = *kind, a.common.term, a.common.skew, a.common.poll
	f.Clocks, f.Every = a.common.clocks, a.common.extendEvery
	if f.latency > 0 {
		f.Store.Latency = f.latency
	}
	return a.answer(f.asJSON, f.figures(), f.text)
}

// command is the choice for a command that runs, which is asked to end before the view does;
// false where the term is too short for one.
func (f *planFlags) command() (times runner.Times, c plan.Choice, fits bool) {
	times, err := runner.TimesFor(f.Term, f.Skew, f.grace)
	if err != nil {
		return times, c, false
	}
	c = f.Choice
	c.Before = times.Grace + times.Margin
	if c.Every == 0 {
		c.Every = times.Extend()
	}
	return times, c, true
}

// figures are what --json prints.
func (f *planFlags) figures() map[string]any {
	r := f.Work()
	seconds := func(s plan.Span) map[string]float64 {
		return map[string]float64{"min": s.Min.Seconds(), "median": s.Median.Seconds(), "max": s.Max.Seconds()}
	}
	all := map[string]any{
		"crash_seconds": seconds(r.Crash), "hand_over_seconds": seconds(r.HandOver),
		"lifeline_standby_seconds":       seconds(r.Standby),
		"silent_outage_survived_seconds": r.Silent.Seconds(), "refusing_outage_survived_seconds": r.Refused.Seconds(),
		"writes_per_month": math.Round(r.Writes), "reads_per_month": math.Round(r.Reads),
		"warnings": append([]string{}, f.Warnings()...),
	}
	if t, c, fits := f.command(); fits {
		r := c.Work()
		all["command"] = map[string]float64{
			"grace_seconds": t.Grace.Seconds(), "extend_every_seconds": c.Extend().Seconds(), "writes_per_month": math.Round(r.Writes), "silent_outage_survived_seconds": r.Silent.Seconds(), "refusing_outage_survived_seconds": r.Refused.Seconds(),
		}
	}
	return all
}

func (f *planFlags) text() string {
	r := f.Work()
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	how := "standbys poll"
	if f.Store.Pushes {
		how = "pushes changes"
	}
	skew := fmt.Sprintf("skew %v", f.Skew)
	switch f.Clocks {
	case leaderelection.SharedClock:
		skew = "one clock for all"
	case leaderelection.Unsynchronized:
		skew = fmt.Sprintf("unsynchronized clocks that run apart by %v a term at most", max(f.Skew, f.Term/100))
	}
	p("term %v, %s, %d candidates, on %s (%s, %v a request)", f.Term, skew, f.Candidates, f.Store.Name, how, f.Store.Latency)
	p("")
	p("%-34s %9s %9s %9s", "nobody leads for", "shortest", "median", "longest")
	row := func(name string, s plan.Span) {
		p("%-34s %9v %9v %9v", name, short(s.Min), short(s.Median), short(s.Max))
	}
	row("after a crash of its machine", r.Crash)
	p("after a crash of its process alone,")
	row("  without a lifeline", r.Crash)
	row("  a standby or a restart there", r.Standby)
	row("when the leader goes by choice", r.HandOver)
	p("")
	p("outage of the store survived       %v if nothing answers, %v if each request fails at once", short(r.Silent), short(r.Refused))
	if t, c, fits := f.command(); fits {
		r := c.Work()
		p("  by a command                     %v, %v; grace %v, an extension each %v, %.0f writes a month", short(r.Silent), short(r.Refused), short(t.Grace), short(c.Extend()), r.Writes)
	}
	p("store operations a month           %.0f writes, %.0f reads", r.Writes, r.Reads)
	for _, w := range f.Warnings() {
		p("\nwarning: %s", w)
	}
	return b.String()
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
