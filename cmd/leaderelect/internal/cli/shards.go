package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/shards"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
	"github.com/c8e606e4/leaderelection/shard"
)

func (a *app) shardsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "shards",
		Short: "Divide shards among members, each owned by one at a time",
		Args:  noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error {
			return usage("no command given; leaderelect help shards lists them")
		},
		SuggestionsMinimumDistance: 2,
	}
	c.AddCommand(a.shardsRunCommand(), a.shardsStatusCommand(), a.shardsWatchCommand(), a.shardsMoveCommand(), a.shardsUnpinCommand(),
		a.shardsDrainCommand(), a.shardsUndrainCommand(), a.shardsResetCommand(), a.shardsDoctorCommand(), a.shardsSidecarCommand())
	return c
}

// firstRecord is the record of a group that is opened first.
const firstRecord = "coordinator"

// observer follows a group.
func (a *app) observer(g *store.Group) shard.WatchConfig {
	return shard.WatchConfig{
		Store: g.Store, PollInterval: a.common.poll, MaxClockSkew: a.common.skew, ClockPolicy: a.common.clocks, Logger: a.logger(),
	}
}

// divided are the flags that say what a group divides.
type divided struct {
	shards int
	names  []string
}

func (d *divided) flags(c *cobra.Command) {
	c.Flags().IntVar(&d.shards, "shards", 0, "how many numbered shards the group has, called 0 to N-1; the same for all members")
	c.Flags().StringSliceVar(&d.names, "names", nil, "the names of the shards, instead of numbers; \"@FILE\" reads a name from each line of a file, again once a term")
}

func (d *divided) given() bool { return d.shards != 0 || len(d.names) > 0 }

// of are the shards that the flags name.
func (d *divided) of() (shard.Shards, error) {
	switch {
	case d.shards != 0 && len(d.names) > 0:
		return shard.Shards{}, usage("--shards and --names exclude each other")
	case len(d.names) > 0:
		names, err := listed("--names", d.names)
		if err != nil {
			return shard.Shards{}, err
		}
		return shard.Named(names...), nil
	case d.shards <= 0 || d.shards > shard.MaxShards:
		return shard.Shards{}, usage("--shards is %d, must be from 1 to %d: say how many there are, or their --names", d.shards, shard.MaxShards)
	}
	return shard.Numbered(d.shards), nil
}

// listed are the values of a flag, those in files included. Empty lines of a file, and
// those that begin with #, are none.
func listed(flag string, values []string) (all []string, err error) {
	for _, v := range values {
		path, file := strings.CutPrefix(v, "@")
		if !file {
			all = append(all, v)
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, usage("%s: %v", flag, err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				all = append(all, line)
			}
		}
	}
	return all, nil
}

func (a *app) shardsStatusCommand() *cobra.Command {
	var asJSON, each bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "status [URL]",
		Short: "Show who owns which shard",
		Args:  cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			a.begun(exitUsage) // errors are 2 here, too
			s, err := a.lookAt(c.Context(), url, timeout)
			if err != nil {
				return err
			}
			switch err := a.answer(asJSON, s, func() string { return s.Text(each) }); {
			case err != nil:
				return err
			case !s.Calm():
				return &exit{exitUnled, nil}
			}
			return nil
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&each, "each", false, "list all shards")
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the store")
	return c
}

// lookAt says what one look at a group tells.
func (a *app) lookAt(ctx context.Context, url string, timeout time.Duration) (shards.State, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within --timeout %v", timeout))
	defer cancel()
	g, err := a.openGroupOnce(ctx, store.Existing(url), timeout)
	if err != nil {
		return shards.State{}, late(ctx, err)
	}
	defer g.Close()
	s, err := lookOnce(ctx, a.observer(g))
	if err != nil {
		return s, late(ctx, advised(url, err))
	}
	return s, nil
}

// errMembers is what went wrong after the assignment could be read.
var errMembers = errors.New("reading the members")

// lookOnce reads assignment, seats and coordinator.
func lookOnce(ctx context.Context, w shard.WatchConfig) (shards.State, error) {
	as, err := w.Read(ctx)
	if err != nil && !errors.Is(err, shard.ErrNoGroup) {
		return shards.State{}, err
	}
	seats, err := w.Seats(ctx, as)
	if err != nil {
		return shards.State{}, fmt.Errorf("%w: %w", errMembers, err)
	}
	if seats == nil {
		seats = []shard.Seat{} // they were looked at
	}
	s := shards.Of(as, seats, time.Now())
	s.Coordinator, err = w.Coordinator(ctx)
	return s, err
}

func (a *app) shardsWatchCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "watch [URL]",
		Short: "Print each change of owner",
		Args:  cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			return a.printEvents(c.Context(), asJSON, func(ctx context.Context, tell printer) error { return a.watchShards(ctx, url, tell) })
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print each event as a line of JSON")
	return c
}

// watchShards tells of each event of a group until ctx ends.
func (a *app) watchShards(ctx context.Context, url string, tell printer) error {
	g, err := a.openGroup(ctx, store.Existing(url))
	if err != nil {
		return err
	}
	defer g.Close()
	w := a.observer(g)
	if _, err := w.Read(ctx); errors.Is(err, shard.ErrNoGroup) {
		a.logger().Info("there is no group yet; waiting for its first member", "group", redact.URL(url))
	}
	var f shards.Follower
	return w.Watch(ctx, func(_ context.Context, as *shard.Assignment) {
		for _, e := range f.Changed(as, time.Now()) {
			if !tell(&e) {
				return
			}
		}
	})
}

func (a *app) shardsDoctorCommand() *cobra.Command {
	var asJSON, strict bool
	var d divided
	var members int
	var dir lifelineDir
	c := &cobra.Command{
		Use:   "doctor [URL]",
		Short: "Check whether store and clock are fit for a group",
		Args:  cobra.MaximumNArgs(1),
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
