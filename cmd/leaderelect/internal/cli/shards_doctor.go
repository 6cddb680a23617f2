package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/shards"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
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
			return a.checkup(c.Context(), asJSON, func(ctx context.Context, tell func(doctor.Finding)) (bool, error) {
				return a.examineGroup(ctx, url, set, members, tell)
			})
		},
	}
	d.flags(c)
	c.Flags().IntVar(&members, "members", 10, "how many members the group has, for how large its assignment is")
	c.Flags().BoolVar(&asJSON, "json", false, "print each finding as a line of JSON")
	return c
}

// examineGroup makes all checks.
func (a *app) examineGroup(ctx context.Context, url string, set shard.Shards, members int, tell func(doctor.Finding)) (well bool, err error) {
	g, err := opening(tell, url, func() (*store.Group, error) { return a.openGroupOnce(ctx, url, openPatience) })
	if g == nil {
		return false, err
	}
	defer g.Close()
	var records [3]leaderelection.RaceDecider
	for i, name := range []string{firstRecord, "doctor", "doctor-2"} {
		if records[i], err = g.Open(ctx, name); err != nil {
			tell(doctor.Finding{Check: "opening the record " + name, Verdict: doctor.Fail, Detail: err.Error(), Advice: "each record of the group must be there for its members: check the name and the permissions"})
			return false, nil
		}
	}
	if !a.examine(ctx, records[0], records[1], url, "; members write records of several names: coordinator, assignment, seat-0, seat-1 and so on", tell) {
		return false, nil
	}
	x := &shards.Exam{One: records[1], Other: records[2], Members: members, Shards: set, Pause: pauseOf(url), Patience: max(a.common.term/4, time.Second), Tell: tell}
	return x.Run(ctx) && x.Group(ctx, a.observer(g)), nil
}
