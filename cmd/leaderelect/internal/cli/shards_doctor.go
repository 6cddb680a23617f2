package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/plan"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/shards"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/redact"
	"github.com/c8e606e4/leaderelection/shard"
)

func (a *app) shardsDoctorCommand() *cobra.Command {
	var asJSON bool
	var d divided
	var members int
	c := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Check whether store and clock are fit for a group",
		Long: `Make the checks of leaderelect doctor, and those that a group of shards needs besides: that
the store tells the records of two names apart, that it keeps a record as large as the
assignment of so many shards and names, and how many shards would fit.

The group's own records are only read. What is written goes to two scratch records beside
them, called doctor and doctor-2 as the others are called coordinator and assignment. They
stay there, vacant, and may be deleted.

Exit codes: 0 nothing failed; 1 something did; 2 usage.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			url, _, err := a.url(args)
			if err != nil {
				return err
			}
			set := shard.Numbered(0)
			if d.given() {
				if set, err = d.of(); err != nil {
					return err
				}
			}
			if members < 1 {
				return usage("--members is %d, must be at least 1", members)
			}
			if _, err := store.InGroup(url, firstRecord); err != nil {
				return err
			}
			a.begun(exitError)
			return a.examineGroup(c.Context(), url, set, members, asJSON)
		},
	}
	d.flags(c)
	c.Flags().IntVar(&members, "members", 10, "how many members the group has, for how large its assignment is")
	c.Flags().BoolVar(&asJSON, "json", false, "print each finding as a line of JSON")
	return c
}

// examineGroup makes all checks, and tells what each has found.
func (a *app) examineGroup(ctx context.Context, url string, set shard.Shards, members int, asJSON bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, nil)()
	var unwritten error
	tell := func(f doctor.Finding) {
		f.Detail, f.Advice = a.fit(f.Detail), a.fit(f.Advice)
		switch {
		case unwritten != nil:
			return
		case asJSON:
			unwritten = json.NewEncoder(a.out).Encode(f)
		default:
			_, unwritten = fmt.Fprintln(a.out, f.Text())
		}
		if unwritten != nil {
			cancel(unwritten) // nobody reads on
		}
	}
	well, err := a.examineStore(ctx, url, set, members, tell)
	switch {
	case err != nil:
		return err
	case unwritten != nil:
		return fmt.Errorf("writing a finding: %w", unwritten)
	case !well:
		return &exit{exitError, nil}
	}
	return nil
}

func (a *app) examineStore(ctx context.Context, url string, set shard.Shards, members int, tell func(doctor.Finding)) (well bool, err error) {
	begin := time.Now()
	g, err := a.openGroupOnce(ctx, url, openPatience)
	switch {
	case errors.Is(err, store.ErrURL):
		return false, err
	case err != nil:
		tell(doctor.Finding{Check: "opening the store", Verdict: doctor.Fail, Detail: err.Error(), Advice: "check the URL, the network and the credentials"})
		return false, nil
	}
	defer g.Close()
	tell(doctor.Finding{Check: "opening the store", Verdict: doctor.OK, Detail: fmt.Sprintf("in %s: %s", doctor.Took(time.Since(begin)), redact.URL(url))})
	place, err := g.Open(ctx, firstRecord)
	if err != nil {
		return false, err
	}
	one, err := g.Open(ctx, "doctor")
	if err != nil {
		return false, err
	}
	if !a.examine(ctx, place, one, url, tell) {
		return false, nil
	}
	other, err := g.Open(ctx, "doctor-2")
	if err != nil {
		return false, err
	}
	x := &shards.Exam{One: one, Other: other, Members: members, Shards: set, Patience: max(a.common.term/4, time.Second), Tell: tell}
	if kind := plan.Lookup(store.Kind(url)); kind != nil && kind.Fastest > 0 && !strings.Contains(url, "endpoint=") {
		x.Pause = kind.Fastest + kind.Fastest/10
	}
	well = x.Run(ctx)
	if w := a.observer(g); well {
		well = x.Group(ctx, w)
	}
	return well, nil
}
