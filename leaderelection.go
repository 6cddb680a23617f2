package leaderelection

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/c8e606e4/leaderelection/clocks"
)

// What a Config means that leaves a duration zero, and the bounds of what it may name.
const (
	// DefaultTermLength is the TermLength of a Config that names none.
	DefaultTermLength = 15 * time.Second
	// DefaultMaxClockSkew is the MaxClockSkew of a Config that names none, and does
	// not say that all share one clock.
	DefaultMaxClockSkew = time.Second
	// MinTermLength is the shortest TermLength: about the time that the scheduler of
	// a busy machine, or the collector of a large heap, may keep a leader waiting.
	MinTermLength = 100 * time.Millisecond
	// MaxTermLength is the longest TermLength: a year. Longer durations elsewhere,
	// in a Config or in a record, are taken for a year.
	MaxTermLength = 365 * 24 * time.Hour
)

// Config is a candidate. Fill in Decider and LeaderID, mostly OnElected, choose
// MaxClockSkew, and call [Config.Acquire], [Config.Start] or [Config.Run]; a
// Config may be used for several campaigns. It is not changed by them.
type Config struct {
	// Decider holds the record that the candidates compete for. Required.
	Decider RaceDecider

	// LeaderID names this candidate to the others, to operators and to
	// observers. Required; unique among the candidates of the election (two
	// that share one never lead at once, but nobody can tell them apart), and
	// not AnySuccessor.
	LeaderID string

	// HostPort is where clients reach this candidate when it leads; see
	// SelfHostPorts. Optional: only observers read it. Campaign.Announce changes it.
	HostPort []string

	// ConnectionParams is whatever else clients need to know. Opaque to the
	// library; kept in the record, so keep it small. Announce changes it, too.
	ConnectionParams []byte

	// TermLength is how long a lease runs unless it is extended, which happens
	// about twice a term. After a crash the others wait between half of it and
	// all of it, plus MaxClockSkew, before one of them leads; an outage of the
	// store is survived for about half of it; the store sees about two writes
	// in it. Zero means 15 s. At least twice MaxClockSkew, and from MinTermLength
	// to MaxTermLength; below about 2 s the latency of most stores begins to cost
	// leaderships.
	TermLength time.Duration

	// MaxClockSkew bounds how far any candidate's wall clock is from true
	// time. All safety rests on it: a leader stops acting this much before its
	// term ends, and a challenger waits this much longer, each by its own
	// clock. It must not be smaller for one candidate than for another. 1 s is
	// ample for machines with a working NTP client, 100 ms for most clouds'
	// own time service. Zero means 1 s.
	MaxClockSkew time.Duration

	// SharedClock says that all candidates read one and the same clock, as the
	// processes of one machine do: then there is no skew, and no margin for it.
	// Nothing checks that it is true. MaxClockSkew must be zero then. Set it for
	// all candidates of an election or for none.
	SharedClock bool

	// Unsynchronized is for machines whose clocks cannot be trusted at all: no
	// wall clock is compared with another machine's. The leader's view runs on
	// its own monotonic clock from before each write. It also ends when its own wall
	// clock jumps: ahead, as after a suspend, or back by more than the allowance,
	// which would hide one. (A wall clock that is set back while the machine is
	// suspended hides the suspend: nothing can tell.) A challenger waits, by its
	// monotonic clock, until it has not seen the term change for a whole term
	// and an allowance for drift: MaxClockSkew, or a hundredth of the term where
	// that is more. So clocks may be hours apart, but in one term two of them may
	// not run apart by more than the allowance. The Clock must have a monotonic
	// reading. The price: after a crash the wait
	// is counted from when a challenger saw the last extension, not from when it
	// was written, so up to a PollInterval more on a store that cannot push, and
	// a challenger that has just started waits a whole term. It is noted in the
	// record, and all candidates go by it, whatever their own Config says; still,
	// set it for all or none.
	Unsynchronized bool

	// WarnOnClockSkew makes a clock that is proved to be off by more than
	// MaxClockSkew a matter of a warning. By default such a candidate does not
	// campaign, and such a leader steps down at once with ErrClockSkew: what it
	// does would not be safe. The proof is a store's stamp (LeaderToken.CommitTS)
	// that lies outside of the time in which the request was out, or the Clock's
	// own word where it is a clocks.Bounded, such as clocks.Kernel(). Set it where
	// it is the store's clock that is wrong. Without meaning where Unsynchronized
	// or SharedClock is set.
	WarnOnClockSkew bool

	// OnElected is called once for each leadership, in a goroutine of its own. ctx
	// is cancelled, with a cause, when leadership has ended or is about to be
	// given up; expiry is the leadership's view, to be asked before each act, and
	// carries the fencing token. When OnElected returns while leading, the
	// lease is kept. Optional: see Campaign.Leadership for what takes its place. Run
	// has a job in its place.
	OnElected func(ctx context.Context, expiry *TimeView)

	// OnOusting is called once for each OnElected, as soon as the leader's ctx
	// was cancelled, whether OnElected has returned or not. Its own ctx is
	// live, and ends with DrainTimeout. Optional.
	OnOusting func(ctx context.Context)

	// LeaderChanged is called for each new leadership, one's own included, and each
	// vacancy, one call at a time and in order, with the new record. A slow one
	// delays only the next of its kind; where one is stuck, the oldest of more
	// than a hundred waiting records are dropped. Optional.
	LeaderChanged func(ctx context.Context, entry RaceEntry)

	// ExtendEvery is how long after a confirmed extension a leader begins the next. Zero
	// means half of TermLength less MaxClockSkew. A leader that is cut off from its store
	// leads on for
	//
	//	TermLength - MaxClockSkew - ExtendEvery
	//
	// at the least, and an outage is borne if one of its attempts, which come every eighth
	// of a term or so, works by then. That costs TermLength / ExtendEvery writes in a
	// term. With a term of 15 s and a skew of 1 s it is 7 s for 2.1 writes if zero, and 10 s
	// for 3.75 writes if 4 s. For a term after a store call has failed, or taken more than
	// an eighth of a term, extensions are made after half of it: an outage that has
	// announced itself so is borne for half of ExtendEvery longer. From a twentieth of TermLength to half of it less MaxClockSkew.
	ExtendEvery time.Duration

	// Priority makes one candidate preferred to those whose Priority is less. When it has
	// stood by for a term, healthy and with a right clock, it asks a less preferred
	// leader to hand over to it, as Transfer does, so long as that one has led for
	// about four terms. It has no part in who leads after a crash, or in safety.
	// From -2^31 to 2^31-1. Zero for all means that all are alike.
	Priority int

	// Hold is for what is to run at most once in a period: see Once. For so long from
	// the beginning of each leadership nobody else acquires the record, whether the
	// leader has released it, has died, or goes on. It is in the record, so no process
	// need stay for it. Between two clocks that are apart it may be over up to
	// MaxClockSkew early by true time. All candidates' builds must know of it: older ones refuse the
	// record. Zero: no longer than the term, or until the release.
	Hold time.Duration

	// PollInterval is how often a standby reads the record where the store
	// cannot push changes, or its feed has failed, and how often Healthy is
	// asked while the candidate is sick. Zero means half a term: two reads a
	// term. Shorter ones notice a release sooner; the fail-over after a crash
	// does not depend on it. Less than 10 ms is taken for 10 ms, more than a year
	// for a year.
	PollInterval time.Duration

	// DrainTimeout is how long the lease is kept, and extended, while the
	// leader's callbacks wind down after leadership was given up by choice.
	// After that it runs out by itself. Zero means one term. To stop within a
	// supervisor's patience, leave 10 s of it for the release (see Acquire).
	DrainTimeout time.Duration

	// Healthy is asked before each campaign and each extension. While it
	// returns an error, or no answer within a quarter of a term, this candidate
	// does not campaign, and gives up leadership. Its ctx ends when that time is
	// over, or the campaign; Wait waits for it. Optional.
	Healthy func(ctx context.Context) error

	// Clock is the candidate's clock. Nil means the system's.
	Clock clocks.Clock

	// Logger is told what happens: changes of leadership at Info, what went
	// wrong at Warn and Error, each store operation at Debug. Nil means
	// silence. A Logger that blocks delays nothing else.
	Logger *slog.Logger

	// Trace is told what happens in a form for programs. Optional.
	Trace *Trace
}

// Acquire campaigns in the election until ctx ends, leading as often as it wins. It
// returns after every callback has returned and what was led has been released,
// with context.Cause(ctx), or at once where the Config is wrong, or with an
// ErrPermanent where the store refused for good before anything had worked: reads
// before any read, or writes before any write.
//
// After ctx has ended it takes as long as the leader's callbacks, which DrainTimeout
// bounds if they heed their ctx, and then as long as the release, which is given up
// after 10 s at the latest (and after a term, where that is shorter).
func (c Config) Acquire(ctx context.Context) error {
	campaign, err := c.Start(ctx)
	if err != nil {
		return err
	}
	return campaign.Wait()
}

// Start begins a campaign and returns at once, without having asked the store
// anything. It refuses only a Config that is wrong, naming all its faults. The
// campaign goes on until ctx ends.
func (c Config) Start(ctx context.Context) (*Campaign, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return start(ctx, c.withDefaults(), nil), nil
}

// validate returns all that is wrong with c, and with whatever is given besides.
func (c *Config) validate(faults ...error) error {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Decider == nil {
		fault("Decider is nil: it holds the record that the candidates compete for")
	}
	switch c.LeaderID {
	case "":
		fault("LeaderID is empty: give each candidate a name of its own")
	case AnySuccessor:
		fault("LeaderID %q is reserved for AnySuccessor", AnySuccessor)
	default:
		if !utf8.ValidString(c.LeaderID) {
			fault("LeaderID %q is not UTF-8 text, which is all that a record can keep", c.LeaderID)
		}
	}
	for _, err := range checkAnnouncement(c.HostPort, c.ConnectionParams) {
		fault("%w", err)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"TermLength", c.TermLength}, {"MaxClockSkew", c.MaxClockSkew},
		{"PollInterval", c.PollInterval}, {"DrainTimeout", c.DrainTimeout}, {"Hold", c.Hold},
	} {
		if d.value < 0 {
			fault("%s is %v, must not be negative", d.name, d.value)
		}
	}
	if c.MaxClockSkew > 0 && c.MaxClockSkew < time.Microsecond {
		fault("MaxClockSkew is %v, which no clock keeps: a bare number counts nanoseconds, say time.Second", c.MaxClockSkew)
	}
	if low, most := c.termLength()/20, (c.termLength()-c.skew())/2; c.ExtendEvery != 0 && (c.ExtendEvery < low || c.ExtendEvery > most) {
		fault("ExtendEvery is %v, must be from %v (a twentieth of TermLength) to %v (half of TermLength less MaxClockSkew)", c.ExtendEvery, low, most)
	}
	if c.SharedClock && c.MaxClockSkew > 0 {
		fault("MaxClockSkew is %v, though SharedClock says that there is no skew: leave one of them out", c.MaxClockSkew)
	}
	switch term, skew := c.termLength(), c.skew(); {
	case term < 0: // said already
	case term < MinTermLength:
		fault("TermLength is %v, must be at least %v: a bare number counts nanoseconds, say 15*time.Second", term, MinTermLength)
	case term > MaxTermLength:
		fault("TermLength is %v, must be at most %v (a year)", term, MaxTermLength)
	case skew > term/2 && c.MaxClockSkew == 0:
		fault("TermLength is %v, must be at least twice MaxClockSkew, which is %v when it is not set: set it to what the clocks keep, or SharedClock if all share one", term, skew)
	case skew > term/2:
		fault("TermLength is %v, must be at least twice MaxClockSkew (2 x %v): less leaves the leader no time to act", term, skew)
	}
	if int(int32(c.Priority)) != c.Priority {
		fault("Priority is %d, must be from -2^31 to 2^31-1", c.Priority)
	}
	if c.Unsynchronized && !hasMonotonic(c.Clock) {
		fault("Unsynchronized needs a monotonic clock, and the Clock (%T) has none: implement clocks.Monotonic", c.Clock)
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("leaderelection: wrong Config: %w", errors.Join(faults...))
}

func (c *Config) termLength() time.Duration {
	if c.TermLength == 0 {
		return DefaultTermLength
	}
	return c.TermLength
}

func (c *Config) skew() time.Duration { return skewOf(c.MaxClockSkew, c.SharedClock) }

// skewOf is the margin that a MaxClockSkew stands for.
func skewOf(skew time.Duration, shared bool) time.Duration {
	if skew == 0 && !shared {
		return DefaultMaxClockSkew
	}
	return skew
}

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
	c.Hold = min(c.Hold, MaxTermLength)
	if c.Clock == nil {
		c.Clock = clocks.System()
	}
	c.HostPort = slices.Clone(c.HostPort)
	c.ConnectionParams = slices.Clone(c.ConnectionParams)
	return c
}

// newIncarnation returns a fresh random id of 130 bits.
func newIncarnation() string { return rand.Text() }

// SelfHostPorts returns this machine's global unicast addresses, each joined
// with port, for a Config's HostPort: IPv4 first, in the order of the
// interfaces that are up. It fails where port is empty or there is no such
// address.
func SelfHostPorts(port string) ([]string, error) {
	if port == "" {
		return nil, errors.New("leaderelection: SelfHostPorts: the port is empty")
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("leaderelection: SelfHostPorts: listing network interfaces: %w", err)
	}
	var v4, v6 []string
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("leaderelection: SelfHostPorts: addresses of %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok || !n.IP.IsGlobalUnicast() {
				continue
			}
			if n.IP.To4() != nil {
				v4 = append(v4, net.JoinHostPort(n.IP.String(), port))
			} else {
				v6 = append(v6, net.JoinHostPort(n.IP.String(), port))
			}
		}
	}
	if len(v4)+len(v6) == 0 {
		return nil, errors.New("leaderelection: SelfHostPorts: this machine has no global unicast address: name one in HostPort")
	}
	return append(v4, v6...), nil
}
