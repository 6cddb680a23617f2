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
	var asJSON, strict bool
	var d divided
	var members int
	var dir lifelineDir
	c := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Check whether store and clock are fit for a group",
		Long: `Make the checks of leaderelect doctor, and those that only a group needs: that the store
keeps records of different names apart, that it stores a record as large as the assignment
of so many shards and names, and how many shards would fit.

The group's own records are only read. The checks write to two scratch records called
doctor and doctor-2, as the group's are called coordinator and assignment. They stay
there, vacant, and you may delete them.

Exit codes: 0 nothing failed; 1 something did, or with --strict a setting may lose a
confirmed write, so that two may lead; 2 usage.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			set := shard.Numbered(0)
			if d.given() {
				var err error
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
			return a.checkup(c.Context(), asJSON, strict, func(ctx context.Context, tell func(doctor.Finding)) error {
				return a.examineGroup(ctx, url, set, members, dir, tell)
			})
		}),
	}
	d.flags(c)
	c.Flags().IntVar(&members, "members", 10, "how many members the group has, which adds to the size of the assignment")
	c.Flags().BoolVar(&strict, "strict", false, strictly)
	c.Flags().BoolVar(&asJSON, "json", false, "print each finding as a line of JSON")
	dir.flag(c, "look at this setting of run and shards run")
	return c
}

// examineGroup makes all checks.
func (a *app) examineGroup(ctx context.Context, url string, set shard.Shards, members int, dir lifelineDir, tell func(doctor.Finding)) error {
	g, err := opening(tell, url, func() (*store.Group, error) { return a.openGroupOnce(ctx, store.Existing(url), openPatience) })
	if err == nil {
		tell(dir.finding())
	}
	if g == nil {
		return err
	}
	defer g.Close()
	var records [3]leaderelection.RaceDecider
	for i, name := range []string{firstRecord, "doctor", "doctor-2"} {
		if records[i], err = g.Open(ctx, name); err != nil {
			tell(doctor.Finding{Check: "opening the record " + name, Verdict: doctor.Fail, Detail: err.Error(), Advice: "each record of the group must be there for its members: check the name and the permissions"})
			return nil
		}
	}
	if !a.examine(ctx, records[0], records[1], url, "; members write records of several names: coordinator, assignment, seat-0, seat-1 and so on", tell) {
		return nil
	}
	x := &shards.Exam{One: records[1], Other: records[2], Members: members, Shards: set, Pause: pauseOf(url), Patience: max(a.common.term/4, time.Second), Tell: tell}
	if x.Run(ctx) {
		x.Group(ctx, a.observer(g))
	}
	return nil
}
