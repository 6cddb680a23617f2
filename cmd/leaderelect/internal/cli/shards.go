package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/doctor"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/shards"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
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

// asked is a group of which an operator asks something.
type asked struct {
	*app
	url     string
	timeout time.Duration
	group   *store.Group
	op      shard.Operator
}

// operator makes c a command by which an operator asks a group for something about the
// names that follow its URL.
func (a *app) operator(c *cobra.Command, do func(ctx context.Context, q *asked, args []string) error, names ...string) *cobra.Command {
	var timeout time.Duration
	c.Use += " " + strings.Join(append([]string{"[URL]"}, names...), " ")
	c.Args = func(c *cobra.Command, args []string) error {
		if len(names) == 0 {
			return cobra.MaximumNArgs(1)(c, args)
		}
		if n := len(args) - len(names); n < 0 || n > 1 {
			return fmt.Errorf("want %s, and the store's URL before it unless that is set otherwise; got %q", strings.Join(names, " and "), args)
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		n := len(args) - len(names)
		url, err := a.url(args[:n])
		switch {
		case err != nil && n == 0 && len(names) > 0:
			return usage("%w; it stands before %s", err, strings.Join(names, " and "))
		case err != nil:
			return err
		}
		a.begun(exitError)
		ctx, cancel := context.WithCancelCause(c.Context())
		defer cancel(nil)
		defer a.signals(cancel, nil)()
		limit := time.AfterFunc(timeout, func() { cancel(errTimeout) })
		defer limit.Stop()
		g, err := a.openGroupOnce(ctx, store.Existing(url), timeout)
		if err != nil {
			return late(ctx, err)
		}
		defer g.Close()
		q := &asked{app: a, url: url, timeout: timeout, group: g, op: shard.Operator{Store: g.Store}}
		err = advised(url, do(ctx, q, args[n:]))
		if _, said := errors.AsType[*exit](err); said || err == nil {
			return err
		}
		return late(ctx, err)
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for it to happen")
	return c
}

// advised is err with where the group is, and what to do, if that is known.
func advised(url string, err error) error {
	switch _, damaged := errors.AsType[*leaderelection.DamagedRecordError](err); {
	case errors.Is(err, errMembers):
		return err
	case errors.Is(err, shard.ErrNoShard):
		return fmt.Errorf("%w; nothing was asked for: leaderelect shards status --each lists the shards", err)
	case errors.Is(err, shard.ErrNoGroup):
		return fmt.Errorf("%w (%s)", err, redact.URL(url))
	case damaged, errors.Is(err, shard.ErrForeign):
		at, wrong := store.InGroup(url, "assignment")
		if wrong != nil {
			at = url
		}
		return fmt.Errorf("%w. It is left as it is, at %s: %s", err, redact.URL(at), shards.Foreign)
	}
	return err
}

// look reads what there is of the group; none is an error.
func (q *asked) look(ctx context.Context) (*shards.State, error) {
	s, err := lookOnce(ctx, q.observer(q.group))
	if err == nil && s.Version == 0 {
		err = shard.ErrNoGroup
	}
	return &s, err
}

// unless refuses what cannot happen, for a reason why, unless it is forced.
func unless(force bool, why string) error {
	if force || why == "" {
		return nil
	}
	return fmt.Errorf("%s; nothing was asked for (--force asks all the same)", why)
}

const aboutForce = "ask even if it cannot happen now: the request stays until it can"

func (q *asked) say(format string, args ...any) error {
	_, err := fmt.Fprintf(q.out, format+"\n", args...)
	return err
}

func (a *app) shardsMoveCommand() *cobra.Command {
	var force bool
	c := a.operator(&cobra.Command{
		Use:   "move",
		Short: "Pin a shard to a member",
	}, func(ctx context.Context, q *asked, args []string) error { return q.move(ctx, args[0], args[1], force) }, "SHARD", "MEMBER")
	c.Flags().BoolVar(&force, "force", false, aboutForce)
	return c
}

func (q *asked) move(ctx context.Context, name, to string, force bool) error {
	s, err := q.look(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(s.Assigned, func(one shards.Shard) bool { return one.Name == name }) {
		return fmt.Errorf("%w %q", shard.ErrNoShard, name)
	}
	if err := unless(force, s.CannotMove(name, to)); err != nil {
		return err
	}
	if err := q.op.Pin(ctx, name, to); err != nil {
		return err
	}
	return q.until(ctx, func(as *shard.Assignment) (done bool, now string) {
		o, _ := as.Owner(name)
		switch {
		case o.Member == to && !o.Moving:
			return true, fmt.Sprintf("%s owns shard %s, with token %d", state.Name(to), state.Name(name), o.Token)
		case o.Member == "":
			return false, fmt.Sprintf("nobody owns shard %s", state.Name(name))
		}
		return false, fmt.Sprintf("%s still owns shard %s", state.Name(o.Member), state.Name(name))
	}, func(s *shards.State) string { return s.NotMoved(name, to) })
}

func (a *app) shardsUnpinCommand() *cobra.Command {
	return a.operator(&cobra.Command{
		Use:   "unpin",
		Short: "Remove the pin of a shard",
	}, func(ctx context.Context, q *asked, args []string) error {
		if err := q.op.Unpin(ctx, args[0]); err != nil {
			return err
		}
		return q.say("shard %s is pinned to nobody", state.Name(args[0]))
	}, "SHARD")
}

func (a *app) shardsDrainCommand() *cobra.Command {
	var force, wait bool
	c := a.operator(&cobra.Command{
		Use:   "drain",
		Short: "Move a member's shards to the others",
	}, func(ctx context.Context, q *asked, args []string) error { return q.drain(ctx, args[0], force, wait) }, "MEMBER")
	c.Flags().BoolVar(&force, "force", false, aboutForce)
	c.Flags().BoolVar(&wait, "wait", true, "wait until the member is empty")
	return c
}

func (q *asked) drain(ctx context.Context, id string, force, wait bool) error {
	s, err := q.look(ctx)
	if err != nil {
		return err
	}
	if err := unless(force, s.CannotDrain(id)); err != nil {
		return err
	}
	if err := q.op.Drain(ctx, id); err != nil {
		return err
	}
	if !wait {
		return q.say("%s is to be emptied", state.Name(id))
	}
	return q.until(ctx, func(as *shard.Assignment) (done bool, now string) {
		left := held(as, id)
		return left == 0, fmt.Sprintf("%s owns %d shards that are not pinned to it", state.Name(id), left)
	}, func(s *shards.State) string { return s.NotDrained(id) })
}

// held is how many shards a member has that are not pinned to it.
func held(as *shard.Assignment, id string) (n int) {
	pins := as.Pins()
	for i := range as.Len() {
		if name, o := as.Shard(i); o.Member == id && pins[name] != id {
			n++
		}
	}
	return n
}

func (a *app) shardsUndrainCommand() *cobra.Command {
	return a.operator(&cobra.Command{
		Use:   "undrain",
		Short: "Give a drained member its share again",
	}, func(ctx context.Context, q *asked, args []string) error {
		id := args[0]
		as, err := q.observer(q.group).Read(ctx)
		if err != nil {
			return err
		}
		if !slices.Contains(as.Drained(), id) && !slices.ContainsFunc(as.Members(), func(o shard.Owner) bool { return o.Member == id }) {
			return fmt.Errorf("the group has no member %s, and none of that name is drained: leaderelect shards status lists them", state.Name(id))
		}
		if err := q.op.Undrain(ctx, id); err != nil {
			return err
		}
		return q.say("%s gets its share", state.Name(id))
	}, "MEMBER")
}

func (a *app) shardsResetCommand() *cobra.Command {
	var after uint64
	var force bool
	c := a.operator(&cobra.Command{
		Use:   "reset",
		Short: "Replace an assignment that the group cannot continue from",
	}, func(ctx context.Context, q *asked, _ []string) error {
		if after == 0 {
			return usage("--after is missing, or 0: name the greatest token of any shard that any fence, log or backup has seen")
		}
		if err := q.op.Reset(ctx, leaderelection.ElectionNumber(after), force); err != nil {
			return err
		}
		return q.say("nobody owns any shard, and each one's next token is greater than %d", after)
	})
	c.Flags().Uint64Var(&after, "after", 0, "the greatest token of any shard that any fence, log or backup has seen")
	c.Flags().BoolVar(&force, "force", false, "write even if members may run: only when all have been stopped for a term")
	return c
}

// until waits until what was asked for has happened, and says so, or where things are when
// the time is over, and why.
func (q *asked) until(ctx context.Context, is func(*shard.Assignment) (done bool, now string), why func(*shards.State) string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	now := "the assignment could not be read"
	w := q.observer(q.group)
	w.PollInterval = cmp.Or(w.PollInterval, 500*time.Millisecond)
	err := w.Watch(ctx, func(_ context.Context, as *shard.Assignment) {
		var done bool
		if done, now = is(as); done {
			cancel(errHappened)
		}
	})
	switch {
	case errors.Is(err, errHappened):
		return q.say("%s", now)
	case !errors.Is(err, errTimeout):
		return err
	}
	again, cancelAgain := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancelAgain()
	if s, err := q.look(again); err == nil {
		now += "; " + why(s)
	}
	return &exit{exitError, fmt.Errorf("asked, but not within %v: %s", q.timeout, now)}
}
