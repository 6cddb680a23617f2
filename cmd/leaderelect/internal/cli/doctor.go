package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/plan"
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
		Long: `Check that the store can be reached, each operation that a candidate needs, that
conditional writes are really enforced, latency, the feed of changes, this machine's
clock against the store's and by the kernel's own account, whether --term and --skew
fit, which of the store's settings may lose a confirmed write, and which lifeline this
user's candidates would take on this machine; print each check with its verdict, and what to do.

The election's own record is only read. What is written goes to a scratch record
next to it (the same name with "-doctor" added, or --scratch), which stays there,
vacant, and may be deleted.

Exit codes: 0 nothing failed; 1 something did, or with --strict a setting may lose a
confirmed write, so that two may lead; 2 usage.`,
		Args: cobra.MaximumNArgs(1),
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
