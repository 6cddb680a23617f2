package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// The names that Store is asked for, besides "seat-0", "seat-1" and so on.
const (
	coordinatorName = "coordinator"
	assignmentName  = "assignment"
)

func seatName(k int) string { return fmt.Sprintf("seat-%d", k) }

// DefaultMaxMoving is the MaxMoving of a Config that names none.
const DefaultMaxMoving = 16

// Config is a member of a group. Fill in Store, MemberID, Shards and OnOwned, choose
// MaxClockSkew, and call [Config.Join] or [Config.Start]. A Config is not changed by them.
type Config struct {
	// Store returns the decider of a record of the group: a bucket and a prefix, a
	// table and a key, a subject. It is called with the names "coordinator",
	// "assignment", "seat-0", "seat-1" and so on, for several of them at once, and must
	// return a decider of a record of its own for each name. It is called again for a
	// name only if it has returned an error. Required.
	//
	// It should not wait for anything that may hang. If it does, what needs that record
	// goes without it: a member without a seat, the coordinator without what that seat's
	// member says. All else goes on, and Leave does not wait for it.
	Store func(name string) (leaderelection.RaceDecider, error)

	// MemberID names this member to operators and observers. Required; unique in the
	// group. (Two that share one never own a shard at the same time, but a pin to that
	// name means both.)
	MemberID string

	// Shards are what the group divides. Required; the same for all members. While the
	// members are replaced by such with another set, the coordinator's holds.
	Shards Shards

	// OnOwned is called once for each shard that this member comes to own, in a
	// goroutine of its own. Ctx is cancelled, with a cause, when the shard is to be let
	// go, or the session has ended. The shard moves on when OnOwned has returned, or
	// after DrainTimeout. If it returns before, the shard stays owned. Required.
	OnOwned func(ctx context.Context, o *Owned)

	// Changed is called with each newer assignment that this member has read, one call
	// at a time and in order; those that come while it runs are merged. Optional.
	Changed func(ctx context.Context, a *Assignment)

	// HostPort is where clients reach this member's shards. Optional.
	HostPort []string

	// Weight is this member's share of the shards, beside the others'. Zero means 1.
	Weight int

	// Capacity is the most shards that this member takes. Shards that find no room stay
	// without an owner, which the coordinator logs. Zero means no limit.
	Capacity int

	// Zone is where this member runs. Of the shards that must move, one goes to a member
	// of its own zone (ZoneOf) if balance allows. Optional.
	Zone string

	// ZoneOf returns where a shard is best placed, "" for anywhere. The coordinator's is
	// asked. Optional.
	ZoneOf func(shard string) string

	// MaxMoving is how many shards of one member may be on the move at a time, so that
	// a deployment does not stop the world. The coordinator's holds. Zero means 16.
	MaxMoving int

	// MaxAssignment is how many bytes the assignment may take in its record's
	// ConnectionParams. Name fewer than the constant for a store that is set to refuse
	// less than it does as it comes, such as NATS with a small max_payload: "leaderelect
	// shards doctor" tells how many. Start refuses Shards that do not fit, with ten
	// members, and says how many would; the coordinator, whose MaxAssignment holds, logs
	// when four fifths are used, and leaves the assignment as it is if another would be
	// too large. Zero means the constant.
	MaxAssignment int

	// The following are as in leaderelection.Config, for the seat and the coordinator's
	// election. After a crash a shard is owned again after about TermLength +
	// MaxClockSkew. DrainTimeout is each shard's when it moves, and the session's when
	// the member leaves.
	TermLength      time.Duration
	MaxClockSkew    time.Duration
	SharedClock     bool
	Unsynchronized  bool
	WarnOnClockSkew bool
	PollInterval    time.Duration
	DrainTimeout    time.Duration
	Healthy         func(ctx context.Context) error
	Clock           clocks.Clock
	Logger          *slog.Logger
	Trace           *leaderelection.Trace // the seat's

	// ShardTrace is told of shards that this member owns and lets go, for metrics and
	// tracing. Optional.
	ShardTrace *Trace
}

// Join takes part in the group until ctx ends. It returns when every OnOwned has
// returned and the seat has been released, with context.Cause(ctx), or at once where the
// Config is wrong, or with a leaderelection.ErrPermanent where the store refused for good
// before anything had worked.
func (c Config) Join(ctx context.Context) error {
	m, err := c.Start(ctx)
	if err != nil {
		return err
	}
	return m.Wait()
}

// Start begins to take part, and returns at once, without having asked the store
// anything. It refuses only a Config that is wrong, naming all its faults. One whose Store
// hangs is: Start waits for it for 15 s at most, or until ctx ends, and then returns
// context.Cause(ctx).
func (c Config) Start(ctx context.Context) (*Member, error) {
	stores, err := c.validate(ctx)
	if err != nil {
		return nil, err
	}
	return start(ctx, c.withDefaults(), stores), nil
}

func (c *Config) validate(ctx context.Context) (*stores, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	limit := c.MaxAssignment
	if limit <= 0 || limit > MaxAssignment {
		limit = MaxAssignment
	}
	if err := checkName("MemberID", c.MemberID); err != nil {
		faults = append(faults, err)
	}
	if err := c.Shards.check(); err != nil {
		faults = append(faults, fmt.Errorf("the Shards: %w", err))
	} else if c.Shards.Len() == 0 {
		fault("there are no Shards: say Numbered(64), or Named")
	} else if _, err := c.Shards.size(usualMembers, limit); err != nil {
		fault("%w; about %d of them would fit", err, c.Shards.fit(usualMembers, limit))
	}
	if c.OnOwned == nil {
		fault("OnOwned is nil: it is what a member does with a shard")
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"Weight", c.Weight}, {"Capacity", c.Capacity}, {"MaxMoving", c.MaxMoving}} {
		if n.value < 0 || n.value > 1_000_000 {
			fault("%s is %d, must be from 0 to 1,000,000", n.name, n.value)
		}
	}
	if c.MaxAssignment < 0 || c.MaxAssignment > MaxAssignment {
		fault("MaxAssignment is %d, must be from 0 to %d", c.MaxAssignment, MaxAssignment)
	}
	var s *stores
	if c.Store == nil {
		fault("Store is nil: it returns the decider of each record")
	} else {
		s = newStores(c.Store)
		err := s.distinct(ctx, coordinatorName, assignmentName, seatName(0))
		if err != nil && errors.Is(err, context.Cause(ctx)) {
			return nil, err
		}
		faults = append(faults, err)
	}
	err := errors.Join(faults...)
	if err == nil {
		// What the election itself refuses: durations, clocks.
		cfg := c.election(s.deciders[coordinatorName])
		cfg.OnElected = func(context.Context, *leaderelection.TimeView) {}
		refused, cancel := context.WithCancel(context.Background())
		cancel()
		var campaign *leaderelection.Campaign
		if campaign, err = cfg.Start(refused); err == nil {
			_ = campaign.Wait() // its ctx had ended: it has asked nothing
		}
	}
	if err != nil {
		return nil, fmt.Errorf("shard: wrong Config: %w", err)
	}
	return s, nil
}

func (c Config) withDefaults() Config {
	if c.Weight == 0 {
		c.Weight = 1
	}
	if c.MaxMoving == 0 {
		c.MaxMoving = DefaultMaxMoving
	}
	if c.MaxAssignment == 0 {
		c.MaxAssignment = MaxAssignment
	}
	if c.TermLength == 0 {
		c.TermLength = leaderelection.DefaultTermLength
	}
	if c.MaxClockSkew == 0 && !c.SharedClock {
		c.MaxClockSkew = leaderelection.DefaultMaxClockSkew
	}
	if c.PollInterval == 0 {
		c.PollInterval = c.TermLength / 2
	}
	c.PollInterval = max(c.PollInterval, 10*time.Millisecond)
	if c.DrainTimeout == 0 {
		c.DrainTimeout = c.TermLength
	}
	if c.Clock == nil {
		c.Clock = clocks.System()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// election is the Config of one of the group's elections.
func (c *Config) election(d leaderelection.RaceDecider) leaderelection.Config {
	return leaderelection.Config{
		Decider: d, LeaderID: candidateID(c.MemberID), HostPort: c.HostPort,
		TermLength: c.TermLength, MaxClockSkew: c.MaxClockSkew, SharedClock: c.SharedClock, Unsynchronized: c.Unsynchronized,
		WarnOnClockSkew: c.WarnOnClockSkew, PollInterval: c.PollInterval, DrainTimeout: c.DrainTimeout,
		Healthy: c.Healthy, Clock: c.Clock, Logger: c.Logger,
	}
}
