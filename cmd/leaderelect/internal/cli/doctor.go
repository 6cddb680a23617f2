package cli

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/plan"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

func (a *app) doctorCommand() *cobra.Command {
	var asJSON, strict bool
	var scratch string
	var dir lifelineDir
	c := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Check whether store and clock are fit for an election",
		Args:  cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			if scratch == "" {
				var err error
				if scratch, err = store.Scratch(url); err != nil {
					return err
				}
			}
			if _, err := store.Parse(scratch); err != nil {
				return fmt.Errorf("--scratch: %w", err)
			}
			a.begun(exitError)
			return a.doctor(c.Context(), url, scratch, dir, asJSON, strict)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print each finding as a line of JSON")
	c.Flags().BoolVar(&strict, "strict", false, strictly)
	c.Flags().StringVar(&scratch, "scratch", "", "the URL of a record to write to (default next to the election's)")
	dir.flag(c, "look at this setting of run and shards run")
	return c
}

// strictly is about --strict.
const strictly = "exit with 1 even if only a setting of the store may lose a confirmed write, so that two may lead"

func (a *app) doctor(ctx context.Context, url, scratch string, dir lifelineDir, asJSON, strict bool) error {
	return a.checkup(ctx, asJSON, strict, func(ctx context.Context, tell func(doctor.Finding)) error {
		place, err := opening(tell, url, func() (leaderelection.RaceDecider, error) { return store.Open(ctx, store.Existing(url), openPatience) })
		if err == nil {
			tell(dir.finding())
		}
		if place == nil {
			return err
		}
		defer store.Close(place)
		beside, err := store.Open(ctx, store.Existing(scratch), openPatience)
		if err != nil {
			tell(doctor.Finding{Check: "opening the scratch record", Verdict: doctor.Fail, Detail: err.Error(), Advice: "name another place by --scratch"})
			return nil
		}
		defer store.Close(beside)
		a.examine(ctx, place, beside, url, "; where only the election's own record may be written, name another place by --scratch", tell)
		return nil
	})
}

// checkup prints what examine finds, until it has ended or nobody reads on.
func (a *app) checkup(ctx context.Context, asJSON, strict bool, examine func(ctx context.Context, tell func(doctor.Finding)) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, nil)()
	var out outbox.Box // a signal ends it even if nobody takes what it says
	var unwritten error
	failed := false
	tell := func(f doctor.Finding) {
		failed = failed || f.Verdict == doctor.Fail || strict && f.Unsafe
		f.Detail, f.Advice = a.fit(f.Detail), a.fit(f.Advice)
		if unwritten != nil {
			return
		}
		if unwritten = out.Do(ctx, func() error { return a.answer(asJSON, f, func() string { return f.Text() + "\n" }) }); unwritten != nil {
			cancel(unwritten) // nobody reads on
		}
	}
	switch err := examine(ctx, tell); {
	case err != nil:
		return err
	case unwritten != nil:
		return unwritten
	case failed:
		return &exit{exitError, nil}
	}
	return nil
}

// opening opens a store, and tells of it. The zero value is what cannot be opened, and an
// error what the URL is wrong with.
func opening[T any](tell func(doctor.Finding), url string, open func() (T, error)) (opened T, err error) {
	const check = "opening the store"
	begin := time.Now()
	opened, err = open()
	switch {
	case store.Wrong(err):
		return opened, err
	case err != nil:
		tell(doctor.Finding{Check: check, Verdict: doctor.Fail, Detail: err.Error(), Advice: "check the URL, the network and the credentials"})
		return opened, nil //nolint:nilerr // it was told
	}
	tell(doctor.Finding{Check: check, Verdict: doctor.OK, Detail: fmt.Sprintf("in %s: %s", doctor.Took(time.Since(begin)), redact.URL(url))})
	return opened, nil
}

// examine makes the checks that need the store, and those that do not.
func (a *app) examine(ctx context.Context, place, scratch leaderelection.RaceDecider, url, elsewhere string, tell func(doctor.Finding)) bool {
	x := &doctor.Exam{Place: place, Scratch: scratch, Term: a.common.term, Skew: a.common.skew, Clocks: a.common.clocks, Tell: tell, Elsewhere: elsewhere, Bound: clocks.KernelClock{}.ErrorBound}
	x.Pause = pauseOf(url)
	well := x.Run(ctx)
	kind := plan.Lookup(store.Kind(url))
	if kind == nil {
		return well
	}
	warnings := plan.Choice{Term: a.common.term, Skew: a.common.skew, Poll: a.common.poll, Clocks: a.common.clocks, Candidates: 2, Store: *kind}.Warnings()
	for _, w := range warnings {
		tell(doctor.Finding{Check: "term and skew", Verdict: doctor.Warn, Detail: w, Advice: "see leaderelect plan"})
	}
	if len(warnings) == 0 {
		tell(doctor.Finding{Check: "term and skew", Verdict: doctor.OK, Detail: fmt.Sprintf("%v and %v fit each other and a store of this kind", a.common.term, a.common.skew)})
	}
	return well
}

// pauseOf is what must pass between two writes of a record, by the limit of a URL's store.
func pauseOf(url string) time.Duration {
	kind := plan.Lookup(store.Kind(url))
	if kind == nil || strings.Contains(url, "endpoint=") { // an emulator has no limit
		return 0
	}
	return kind.Fastest + kind.Fastest/10
}

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
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return a.plan(&f, names) },
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
