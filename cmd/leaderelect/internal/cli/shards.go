package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/shard"
)

const aboutShards = `Divide shards among any number of members: one member at a time owns each shard, with
the shard's own fencing token. Use it for work in many parts, such as the partitions of a
queue. The cost for the store grows with the members, and not with the shards.

A group has several records, whose names begin with the URL: etcd://host/orders has
orders-coordinator, orders-assignment, orders-seat-0, orders-seat-1 and so on. For other
names put {name} into the URL, as in s3://bucket/orders/{name}. Any store will do:
leaderelect shards doctor checks a URL.`

func (a *app) shardsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "shards",
		Short: "Divide shards among members, each owned by one at a time",
		Long:  aboutShards,
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
