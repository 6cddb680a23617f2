package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/log/warnings"
)

// The names with which Store is called, in addition to "seat-0", "seat-1" and so on.
const (
	coordinatorName = "coordinator"
	assignmentName  = "assignment"
)

func seatName(k int) string { return fmt.Sprintf("seat-%d", k) }

// DefaultMaxMoving is used if Config.MaxMoving is zero.
const DefaultMaxMoving = 16

// Config describes a member of a group. Set Store, MemberID, Shards and OnOwned, then call [Config.Join] or [Config.Start]. They do not change the Config.
type Config struct {
	// Store returns the decider of one record of the group, such as a bucket and a prefix, a
	// table and a key, or a subject. Required. It is called with the names "coordinator",
	// "assignment", "seat-0", "seat-1" and so on, for several of them at once. For each name
	// it must return a decider of another record. It is called again for a name only if it
	// has returned an error.
	//
	// It should not wait for anything that may hang. If it does, the group goes on without
	// that record: a member without a seat, or the coordinator without news of that seat's
	// member. All else goes on, and Leave does not wait for it.
	Store func(name string) (leaderelection.RaceDecider, error)

	// MemberID names this member to operators and observers. Required. It must be unique in
	// the group. Two members that share a MemberID never own a shard at the same time, but
	// a pin to that name means both.
	MemberID string

	// Shards is the set of shards that the group divides. Required, and the same for all
	// members. While members are replaced by others with another set of names, the
	// coordinator's set counts. If the number of numbered shards differs, the number of
	// most members counts, by Weight, and the others own nothing. A key has another shard
	// then. So every shard is let go before the first shard of the new numbering is given
	// out. See [Owned.Of].
	Shards Shards

	// OnOwned is called once for each shard that this member comes to own, in its own
	// goroutine. Do the shard's work in it. Required. Its ctx is cancelled, with a cause,
	// when the shard must be let go, or the session has ended. The shard then moves when
	// OnOwned, and the requests and calls that lehttp.RequireOwner and the owner interceptors
	// of legrpc have let in, have returned, or after DrainTimeout.
	//
	// If OnOwned returns nil before that, the shard stays owned. If it returns an error
	// before that, this member cannot work on the shard, or declines it. The shard is let go
	// and tried elsewhere. It is tried here again after TermLength, after twice that if it
	// fails again, and so on.
	OnOwned func(ctx context.Context, o *Owned) error

	// HostPort lists the addresses at which clients reach this member's shards. Optional.
	HostPort []string

	// Weight is this member's share of the shards, relative to the other members. Zero means 1.
	Weight int

	// Capacity is the greatest number of shards that this member takes. Shards for which no
	// member has room stay without an owner, which the coordinator logs. Zero means no limit.
	Capacity int

	// Zone names the place in which this member runs. A shard that must move goes to a member
	// of its own zone (see ZoneOf) if balance allows. Optional.
	Zone string

	// ZoneOf returns the best zone for a shard, or "" for any. The coordinator's ZoneOf
	// counts. Optional.
	ZoneOf func(shard string) string

	// MaxMoving is how many shards of one member may move at a time, so that a deployment does
	// not stop all work. The coordinator's MaxMoving counts. Zero means 16.
	MaxMoving int

	// MaxAssignment is how many bytes the assignment may take in its record's
	// ConnectionParams. Zero means the constant MaxAssignment. Set less if your store is
	// configured to take less than by default, such as NATS with a small max_payload:
	// "leaderelect shards doctor" tells how many bytes it takes.
	//
	// Start refuses Shards that do not fit with ten members, and says how many would. The
	// coordinator's MaxAssignment counts. The coordinator logs when four fifths are used. If
	// a new assignment would be too large, it leaves the assignment as it is.
	MaxAssignment int

	// The following fields are as in leaderelection.Config, even a nil Logger. They are for the
	// seat and for the coordinator's election. After a crash a shard is owned again after
	// about TermLength + MaxClockSkew. DrainTimeout is for each shard when it moves, and
	// for the session when the member leaves.
	TermLength   time.Duration
	MaxClockSkew time.Duration
	ClockPolicy  leaderelection.ClockPolicy
	PollInterval time.Duration
	DrainTimeout time.Duration
	Healthy      func(ctx context.Context) error
	Lifeline     leaderelection.Lifeline // no wait for a dead process's term, if the coordinator or the next one is on its machine
	Clock        clocks.Clock            // of views and terms; DrainTimeout and the pauses between retries go by the system's
	Logger       *slog.Logger
	Trace        *leaderelection.Trace // the seat's

	// ShardTrace has hooks for the shards that this member owns and lets go, and for the
	// assignments that it reads: for metrics, tracing and routers. Optional.
	ShardTrace *Trace
}

// Join takes part in the group until ctx ends. It returns context.Cause(ctx), after every OnOwned
// has returned and the seat has been released. If the Config is wrong, it returns an error at
// once. If the store refuses for good before anything has worked, it returns a
// leaderelection.ErrPermanent.
func (c Config) Join(ctx context.Context) error {
	m, err := c.Start(ctx)
	if err != nil {
		return err
	}
	return m.Wait()
}

// Start begins to take part in the group, in the background. Use it if the program does other
// things meanwhile, or asks the [Member]. It does not ask the store anything, and fails only if
// the Config is wrong: the error names all faults. A Config is also wrong if its Store hangs:
// Start waits for it for at most 15 s. The error wraps
// leaderelection.ErrConfig. If ctx ends meanwhile, it returns context.Cause(ctx).
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
	} else if c.Shards.list != nil {
		// The coordinator finds out, and not Start, which asks nobody.
	} else if c.Shards.Len() == 0 {
		fault("there are no Shards: say Numbered(64), Named or Listed")
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
	// What the election itself refuses: durations, clocks. It asks nothing: its ctx has ended.
	cfg := c.election(struct{ leaderelection.RaceDecider }{})
	cfg.LeaderID = coordinatorName // the MemberID was checked
	cfg.OnElected = func(context.Context, *leaderelection.TimeView) {}
	cfg.Logger = slog.New(slog.DiscardHandler)
	campaign, err := cfg.Start(ended)
	if err == nil {
		_ = campaign.Wait()
	}
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, wrong(err)
	}
	return s, nil
}

// wrong returns the error of a Config that has faults.
func wrong(faults error) error {
	if errors.Is(faults, leaderelection.ErrConfig) { // the election's own
		return fmt.Errorf("shard: %w", faults)
	}
	return fmt.Errorf("shard: %w: %w", leaderelection.ErrConfig, faults)
}

func (c Config) withDefaults() Config {
	c.Weight = cmp.Or(c.Weight, 1)
	c.MaxMoving = cmp.Or(c.MaxMoving, DefaultMaxMoving)
	c.MaxAssignment = cmp.Or(c.MaxAssignment, MaxAssignment)
	c.TermLength = cmp.Or(c.TermLength, leaderelection.DefaultTermLength)
	if c.MaxClockSkew == 0 && c.ClockPolicy != leaderelection.SharedClock {
		c.MaxClockSkew = leaderelection.DefaultMaxClockSkew
	}
	c.PollInterval = cmp.Or(c.PollInterval, c.TermLength/2)
	c.PollInterval = max(c.PollInterval, 10*time.Millisecond)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, c.TermLength)
	if c.Clock == nil {
		c.Clock = clocks.System()
	}
	c.Logger = warnings.Or(c.Logger)
	c.ShardTrace = JoinTraces(c.ShardTrace) // never nil
	if l := reflect.ValueOf(c.Lifeline); l.Kind() == reflect.Pointer && l.IsNil() {
		c.Lifeline = nil
	}
	return c
}

// election returns the Config of one of the group's elections.
func (c *Config) election(d leaderelection.RaceDecider) leaderelection.Config {
	return leaderelection.Config{
		Decider: d, LeaderID: candidateID(c.MemberID), HostPort: c.HostPort,
		TermLength: c.TermLength, MaxClockSkew: c.MaxClockSkew, ClockPolicy: c.ClockPolicy,
		PollInterval: c.PollInterval, DrainTimeout: c.DrainTimeout,
		Healthy: c.Healthy, Lifeline: c.Lifeline, Clock: c.Clock, Logger: c.Logger,
	}
}

// patience is how long a caller without another bound than a ctx waits for Store.
const patience = leaderelection.DefaultTermLength

// stores keeps the decider of each name. Store is user code and may hang. So it is called in its
// own goroutine, without a lock, once for all callers that want the name.
type stores struct {
	open func(string) (leaderelection.RaceDecider, error)

	mu       sync.Mutex
	deciders map[string]leaderelection.RaceDecider
	opening  map[string]*opening
	calls    map[string]int // the number of calls that have not returned
}

// maxCalls is how many calls for one record may be under way. There are at most three, unless the
// store neither answers nor respects its ctx.
const maxCalls = 8

var errCallsHang = errors.New("the store neither answers nor heeds its ctx")

// begin reports whether another call may be made for a record. If so, call end when it has
// returned.
func (s *stores) begin(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[name] >= maxCalls {
		return false
	}
	s.calls[name]++
	return true
}

func (s *stores) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[name]--; s.calls[name] == 0 {
		delete(s.calls, name)
	}
}

// opening is a call of Store.
type opening struct {
	done    chan struct{} // closed when it has returned
	decider leaderelection.RaceDecider
	err     error
}

func newStores(open func(string) (leaderelection.RaceDecider, error)) *stores {
	return &stores{open: open, deciders: map[string]leaderelection.RaceDecider{}, opening: map[string]*opening{}, calls: map[string]int{}}
}

// errOneRecord means that two names have one record: each must have its own.
var errOneRecord = errors.New("the Store returned deciders of one record for two names")

var errHangs = errors.New("it should not wait for anything that may hang")

// get returns the decider of a name. It waits for at most d, and until ctx ends. A call of Store
// that hangs is not made again: later callers wait for the same call. A call that has failed is
// made again.
func (s *stores) get(ctx context.Context, d time.Duration, name string) (leaderelection.RaceDecider, error) {
	s.mu.Lock()
	if known, ok := s.deciders[name]; ok {
		s.mu.Unlock()
		return known, nil
	}
	o := s.opening[name]
	if o == nil {
		o = &opening{done: make(chan struct{})}
		s.opening[name] = o
		go s.ask(name, o)
	}
	s.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-o.done:
		return o.decider, o.err
	case <-timer.C:
		return nil, fmt.Errorf("Store(%q) has not returned within %v: %w", name, d, errHangs)
	case <-ctx.Done():
		return nil, fmt.Errorf("Store(%q) has not returned: %w", name, context.Cause(ctx))
	}
}

// ask calls Store.
func (s *stores) ask(name string, o *opening) {
	d, err := leaderelection.RaceDecider(nil), errors.New("it has ended its goroutine") // by runtime.Goexit
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.opening, name)
		if o.err = s.judge(name, d, err); o.err == nil {
			o.decider, s.deciders[name] = d, d
		}
		close(o.done)
	}()
	d, err = s.open(name)
}

// judge returns what is wrong with the result of Store for a name, or nil. The caller holds s.mu.
func (s *stores) judge(name string, d leaderelection.RaceDecider, err error) error {
	if err != nil {
		return fmt.Errorf("Store(%q): %w", name, err)
	}
	v := reflect.ValueOf(d)
	if d == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("Store(%q) returned no decider", name)
	}
	for other, o := range s.deciders {
		if v.Comparable() && reflect.ValueOf(o).Comparable() && o == d {
			return fmt.Errorf("the Store returned the same decider for %q and %q: each must be a record of its own", other, name)
		}
	}
	return nil
}

// current is d.ReadCurrent with a check for nil, which no store's answer can be.
func current(d leaderelection.RaceDecider) func(context.Context) (*leaderelection.RaceEntry, error) {
	return func(ctx context.Context) (*leaderelection.RaceEntry, error) {
		e, err := d.ReadCurrent(ctx)
		if err == nil && e == nil {
			err = fmt.Errorf("the RaceDecider's ReadCurrent returned nil without an error: %w", leaderelection.ErrPermanent)
		}
		return e, err
	}
}

// distinct returns what is wrong with the records of these names. If ctx ends before that is known,
// it returns the cause of ctx alone.
func (s *stores) distinct(ctx context.Context, names ...string) error {
	if ctx.Err() != nil { // the caller wants to know only what is wrong
		ctx = context.WithoutCancel(ctx)
	}
	var faults []error
	for _, name := range names {
		_, err := s.get(ctx, patience, name)
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
			return cause
		}
		if faults = append(faults, err); errors.Is(err, errHangs) {
			break // the others may, too
		}
	}
	return errors.Join(faults...)
}
