package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/log/durations"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// Defaults and bounds of the durations in a Config.
const (
	// DefaultTermLength is used if Config.TermLength is zero.
	DefaultTermLength = 15 * time.Second
	// DefaultMaxClockSkew is used if Config.MaxClockSkew is zero, unless the ClockPolicy is
	// SharedClock.
	DefaultMaxClockSkew = time.Second
	// MinTermLength is the shortest TermLength. For about this long the scheduler of a busy
	// machine, or the garbage collector of a large heap, may keep a leader waiting.
	MinTermLength = 100 * time.Millisecond
	// MaxTermLength is the longest TermLength: a year. A longer duration elsewhere, in a
	// Config or in a record, counts as a year.
	MaxTermLength = 365 * 24 * time.Hour
)

// leastSkew is smaller than the error of any clock.
const leastSkew = time.Microsecond

// Config describes a candidate. Set Decider, LeaderID and usually OnElected,
// then call [Config.Acquire], [Config.Start] or [Config.Run]. You may use a Config for
// several campaigns; they do not change it.
type Config struct {
	// Decider holds the record that the candidates compete for. Required.
	Decider RaceDecider

	// LeaderID names this candidate to the others, to operators and to observers. Required.
	// Choose one that is unique among the candidates of the election, of at most 1,024 bytes, and not AnySuccessor.
	// Two candidates that share a LeaderID never lead at once, but nobody can tell them apart.
	LeaderID string

	// HostPort lists the addresses at which clients reach this candidate when it leads, each with
	// its host; see SelfHostPorts. Optional: only observers read it. Campaign.Announce changes it.
	HostPort []string

	// ConnectionParams holds anything else that clients need to know. Optional. It is opaque
	// to the library. Keep it small, since the record contains it. Campaign.Announce changes
	// it, too.
	ConnectionParams []byte

	// TermLength is how long a lease runs unless it is extended. Zero means 15 s. It must be at
	// least twice MaxClockSkew, and from MinTermLength to MaxTermLength.
	//
	// A leader extends its lease about twice a term, so the store sees about two writes in
	// it. After a crash the others wait between half a term and a term, plus MaxClockSkew,
	// before one of them leads. The leader survives an outage of the store of about half a
	// term. If a term is only twice MaxClockSkew, a clock that is set from one end of its
	// bound to the other ends a healthy leader's leadership. Below about 2 s, the latency
	// of most stores begins to end leaderships. Below 0.6 s, one request that is lost may
	// end one, since a failed call is tried again after a quarter of a second or more.
	TermLength time.Duration

	// MaxClockSkew bounds how far any candidate's wall clock is from true time. Zero means
	// 1 s. All safety rests on it: a leader stops acting this much before its term ends, and
	// a challenger waits this much longer, each by its own clock. It must not be smaller for
	// one candidate than for another. 1 s is ample for machines with a working NTP client,
	// 100 ms for the time services of most clouds.
	MaxClockSkew time.Duration

	// ClockPolicy says how far the candidates' clocks are trusted. Zero means Synchronized.
	// Set the same for all candidates of an election.
	ClockPolicy ClockPolicy

	// OnElected is called once for each leadership, in its own goroutine. Do the leader's work
	// in it, or start it there. A campaign cancels ctx, with a cause, when the leadership has
	// ended or is about to be given up. Ask view before each act;
	// it has the fencing token. If OnElected returns while leading, the lease is kept. A
	// panic in a callback ends the process, as in any goroutine. Optional: Campaign.Lead
	// does without it. For Run and Once it must be nil, since they take a job instead.
	OnElected func(ctx context.Context, view *TimeView)

	// OnOusting is called once for each OnElected, as soon as the leader's ctx is cancelled,
	// even if OnElected has not returned. Its own ctx is live, and ends after DrainTimeout.
	// Optional.
	OnOusting func(ctx context.Context)

	// LeaderChanged is called with the new record for each new leadership, this candidate's
	// own included, and for each vacancy. Those of others may be missed if they are soon
	// replaced. Calls come one at a time and in order. A slow call delays only the next. If
	// a call is stuck and more than a hundred records wait, the oldest are dropped. Optional.
	LeaderChanged func(ctx context.Context, entry RaceEntry)

	// ExtendEvery is the time from the start of a confirmed extension to the next extension.
	// Zero means half of (TermLength - MaxClockSkew), which is also the most; the least is a
	// twentieth of TermLength. A shorter time lets a leader survive longer outages of the
	// store, and costs more writes: TermLength / ExtendEvery in a term.
	//
	// A leader that is cut off from its store continues to lead for at least
	//
	//	TermLength - MaxClockSkew - ExtendEvery
	//
	// It tries again about every eighth of a term, and survives the outage if one of these
	// attempts works by then. With a term of 15 s and a skew of 1 s, zero gives 7 s for 2.1
	// writes in a term, and 4 s gives 10 s for 3.75 writes.
	//
	// For a term after a store call has failed, or has taken more than an eighth of a term (15 s
	// at most), extensions are made after half of ExtendEvery. So an outage that announces itself
	// this way is survived for half of ExtendEvery longer.
	ExtendEvery time.Duration

	// Priority is how much this candidate is preferred, from -2^31 to 2^31-1. The record names the leader's. The election
	// itself does not go by it: package adapters/prefer asks a less preferred leader to hand over, as
	// Transfer does. Zero for all means that all are alike.
	Priority int

	// PollInterval is how often a standby reads the record if the store cannot push changes,
	// or its feed has failed. It is also how often Healthy is asked while the candidate is
	// not healthy. Zero means half a term: two reads a term. With a shorter interval a
	// standby notices a release sooner. The fail-over after a crash does not depend on it.
	// After an outage of the store, a standby asks again within two and a half PollIntervals, and
	// the last leader sooner.
	// Less than 10 ms counts as 10 ms, more than a year as a year.
	PollInterval time.Duration

	// DrainTimeout is how long the campaign keeps and extends the lease while the leader's
	// callbacks wind down, after leadership was given up by choice. After that the lease
	// runs out by itself. Zero means one term. If a supervisor kills the process after some
	// time, leave 10 s of that time for the release (see Acquire).
	DrainTimeout time.Duration

	// Lifeline lets candidates on the same machine take over from a dead leader without waiting
	// for its term. Set it to what lifeline.Dir returns. As soon as the kernel reports the
	// death of the leader's process, another candidate on the machine acquires the record;
	// a process that is started again acquires it at once. Nil means that the others wait
	// for the term. The promise rests on the same conditions as without: only a proof counts.
	//
	// With a Lifeline, a view ends with its process. So no other process may act by the view,
	// for example until an expiry that it was told. A child that acts for the leader must
	// have Lifeline.File. A program that tells others until when they may act must not have
	// a Lifeline. What Dir returns along with an error counts as nil, so a program may go on
	// with it:
	//
	//	line, err := lifeline.Dir("/run/myapp")
	//	if err != nil {
	//		slog.Warn("without a lifeline", "err", err)
	//	}
	//	config.Lifeline = line
	Lifeline Lifeline

	// Healthy reports whether this candidate is fit to lead. It is asked before each
	// acquisition and each extension. While it returns an error, or does not return within a
	// quarter of a term (30 s at most), this candidate does not campaign, and gives up
	// leadership. Its ctx ends after that time, or with the campaign. Wait waits for it to
	// return. Calls come one at a time, so it may count, to report only a number of failures
	// in a row. Optional.
	Healthy func(ctx context.Context) error

	// Clock is the candidate's clock. Nil means the system's.
	Clock clocks.Clock

	// Logger gets changes of leadership at Info, faults at Warn and Error, and each store
	// operation at Debug. Nil means slog.Default() from Warn on. For silence, set
	// slog.New(slog.DiscardHandler). A Logger that blocks delays nothing else.
	Logger *slog.Logger

	// Trace gets the same events in a form for programs, such as metrics. Optional.
	Trace *Trace
}

// ClockPolicy says how far the candidates of an election trust their clocks.
type ClockPolicy uint8

const (
	// Synchronized means that every candidate's wall clock is within MaxClockSkew of true time.
	// Use it if all machines have a working time service.
	//
	// A candidate whose clock is proved to be off by more compares no wall clocks until a proof says otherwise. If it
	// leads, it steps down at once with ErrClockSkew, and leaves the record to the others for a term.
	// After that it may lead by its monotonic clock: its record is marked Unsynchronized. With a Hold
	// it stays away. The proof is a store's timestamp (LeaderToken.CommitTS) that lies outside of the
	// time during which the request was out, by more than MaxClockSkew. The store's clock may be the wrong one:
	// nobody can tell. Or it is the Clock's own error bound, if the Clock is a clocks.Bounded, such
	// as clocks.Kernel().
	Synchronized ClockPolicy = iota

	// SharedClock means that all candidates read the same clock, as the processes of one machine
	// do. Then there is no skew, and no margin for it: MaxClockSkew must be zero. Nothing
	// checks that the clock is shared. It must not be set ahead and back again within a term:
	// while it is ahead another candidate may acquire the record, and afterwards the old view
	// may be true again.
	SharedClock

	// Unsynchronized means that no wall clock is compared with another machine's. Use it for
	// machines whose clocks cannot be trusted at all. The Clock must have a monotonic reading.
	//
	// The leader's view runs on its own monotonic clock, from before each write. A challenger
	// waits, by its monotonic clock, until it has not seen the term change for a whole term
	// plus an allowance for drift: MaxClockSkew, or a hundredth of the term if that is more.
	// So clocks may be hours apart, but in one term no two of them may run apart by more
	// than the allowance. A time service turns the monotonic clock along with the wall clock:
	// ntpd and systemd-timesyncd by at most a two-thousandth, chrony by its maxslewrate, which is
	// 83,333 parts in a million (a twelfth) by default. It must be at most MaxClockSkew divided
	// by TermLength: set maxslewrate to 50000 with the default 1 s and 15 s, or MaxClockSkew to
	// a twelfth of TermLength.
	//
	// The view also ends when the leader's wall clock jumps ahead, as after a suspend, or
	// back by more than the allowance, which could hide a suspend. A wall clock that is set
	// back while the machine is suspended, or in the second before, may hide the suspend:
	// nothing can detect that for sure.
	//
	// The price: after a crash the wait counts from when a challenger saw the last extension,
	// not from when it was written. That is up to a PollInterval longer on a store that
	// cannot push, and a challenger that has just started waits a whole term. The record
	// says that its writer is Unsynchronized, and all candidates go by the record, whatever
	// their own Config says.
	Unsynchronized
)

// String returns the policy's name.
func (p ClockPolicy) String() string {
	if p > Unsynchronized {
		return fmt.Sprintf("ClockPolicy(%d)", uint8(p))
	}
	return [...]string{"Synchronized", "SharedClock", "Unsynchronized"}[p]
}

// fault returns what is wrong with p, or nil.
func (p ClockPolicy) fault(skew time.Duration) error {
	switch {
	case p > Unsynchronized:
		return fmt.Errorf("ClockPolicy is %d, must be Synchronized, SharedClock or Unsynchronized", p)
	case p == SharedClock && skew > 0:
		return fmt.Errorf("MaxClockSkew is %v, but the ClockPolicy SharedClock says that there is no skew: leave one of them out", skew)
	}
	return nil
}

// skew returns the margin that a MaxClockSkew means under p.
func (p ClockPolicy) skew(skew time.Duration) time.Duration {
	if skew == 0 && p != SharedClock {
		return DefaultMaxClockSkew
	}
	return skew
}

// Acquire campaigns until ctx ends, and leads as often as it wins. Use it for a service that
// leads whenever it can; [Config.Start] does the same in the background.
//
// It returns context.Cause(ctx), after every callback has returned and the record has been
// released. If the last store call failed, the error wraps the cause, and tells of that
// failure. If the Config is wrong, Acquire returns an ErrConfig at once. If the store refuses
// for good before anything has worked, it returns an ErrPermanent: for reads before any read
// has worked, for writes before any write has.
//
// After ctx has ended, Acquire first waits for the leader's callbacks, which DrainTimeout
// bounds if they respect their ctx. Then it waits for the release, which it gives up after
// 10 s, or after a term if that is shorter.
func (c Config) Acquire(ctx context.Context) error {
	if err := c.validate(); err != nil {
		return err
	}
	campaign := newCampaign(ctx, c.withDefaults(), 0, single{})
	campaign.loop()
	return campaign.err
}

// Start begins a campaign in the background and returns at once. Use it if the program does
// other things meanwhile, or asks the [Campaign]. The campaign goes on until ctx ends. Start
// does not ask the store anything. It fails only if the Config is wrong, with an ErrConfig that
// names all faults.
func (c Config) Start(ctx context.Context) (*Campaign, error) {
	return c.StartHeld(ctx, 0)
}

// wrong returns an ErrConfig of those faults that are not nil, or nil.
func wrong(faults []error) error {
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// validate returns all faults of c, along with those that the caller has found.
func (c *Config) validate(faults ...error) error {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Decider == nil {
		fault("Decider is nil: it holds the record that the candidates compete for")
	}
	if err := checkID("LeaderID", c.LeaderID); err != nil {
		faults = append(faults, err)
	}
	faults = append(faults, checkAnnouncement(c.HostPort, c.ConnectionParams)...)
	for _, d := range []struct {
		name         string
		value, least time.Duration
	}{
		{"TermLength", c.TermLength, 0}, {"MaxClockSkew", c.MaxClockSkew, leastSkew},
		{"PollInterval", c.PollInterval, durations.Least}, {"DrainTimeout", c.DrainTimeout, durations.Least},
	} {
		faults = append(faults, durations.Fault(d.name, d.value, d.least))
	}
	if low, most := c.termLength()/20, (c.termLength()-c.skew())/2; c.ExtendEvery != 0 && (c.ExtendEvery < low || c.ExtendEvery > most) {
		fault("ExtendEvery is %v, must be from %v (a twentieth of TermLength) to %v (half of TermLength less MaxClockSkew)", c.ExtendEvery, low, most)
	}
	faults = append(faults, c.ClockPolicy.fault(c.MaxClockSkew))
	switch term, skew := c.termLength(), c.skew(); {
	case term < 0: // said already
	case term < MinTermLength:
		fault("TermLength is %v, must be at least %v: a bare number counts nanoseconds, say 15*time.Second", term, MinTermLength)
	case term > MaxTermLength:
		fault("TermLength is %v, must be at most %v (a year)", term, MaxTermLength)
	case skew > term/2 && c.MaxClockSkew == 0:
		fault("TermLength is %v, must be at least twice MaxClockSkew, which is %v when it is not set: set it to what the clocks keep, or the ClockPolicy to SharedClock if all share one", term, skew)
	case skew > term/2:
		fault("TermLength is %v, must be at least twice MaxClockSkew (2 x %v): less leaves the leader no time to act", term, skew)
	}
	if int(int32(c.Priority)) != c.Priority {
		fault("Priority is %d, must be from -2^31 to 2^31-1", c.Priority)
	}
	if c.unsynchronized() && !loop.HasMonotonic(c.Clock) {
		fault("Unsynchronized needs a monotonic clock, and the Clock (%T) has none: implement clocks.Monotonic", c.Clock)
	}
	return wrong(faults)
}

func (c *Config) termLength() time.Duration {
	if c.TermLength == 0 {
		return DefaultTermLength
	}
	return c.TermLength
}

func (c *Config) skew() time.Duration { return c.ClockPolicy.skew(c.MaxClockSkew) }

// unsynchronized reports whether no wall clock may be compared with another machine's.
func (c *Config) unsynchronized() bool { return c.ClockPolicy == Unsynchronized }

// withDefaults returns a copy of c with every zero value replaced, sharing no
// memory with the caller's.
func (c Config) withDefaults() Config {
	c.TermLength, c.MaxClockSkew = c.termLength(), c.skew()
	if c.PollInterval == 0 {
		c.PollInterval = c.TermLength / 2
	}
	if c.ExtendEvery == 0 {
		c.ExtendEvery = (c.TermLength - c.MaxClockSkew) / 2
	}
	c.PollInterval = min(max(c.PollInterval, minPoll), MaxTermLength)
	if c.DrainTimeout == 0 {
		c.DrainTimeout = c.TermLength
	}
	c.DrainTimeout = min(c.DrainTimeout, MaxTermLength)
	if c.Clock == nil {
		c.Clock = clocks.System()
	}
	if c.Trace == nil {
		c.Trace = noTrace
	}
	if l := reflect.ValueOf(c.Lifeline); l.Kind() == reflect.Pointer && l.IsNil() {
		c.Lifeline = nil
	}
	c.HostPort = slices.Clone(c.HostPort)
	c.ConnectionParams = slices.Clone(c.ConnectionParams)
	return c
}

// policy returns the part of c that decides anything. Hold is for how long nobody else acquires the record, from
// each acquisition.
func (c *Config) policy(hold time.Duration) *policy {
	return &policy{id: c.LeaderID, term: c.TermLength, skew: c.MaxClockSkew, hold: min(hold, MaxTermLength), measured: c.unsynchronized(),
		checked: c.ClockPolicy == Synchronized, hostPort: c.HostPort, params: c.ConnectionParams, priority: c.Priority}
}
