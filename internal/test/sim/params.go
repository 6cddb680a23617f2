package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Params is what is drawn once for a simulation. [Draw] makes them from a seed.
type Params struct {
	Seed       uint64
	Hosts      int
	Twins      bool          // the first two have one LeaderID
	Feed       bool          // the store pushes changes
	Tells      bool          // the store returns the record along with a lost race
	Term, Skew time.Duration // Skew is what the clocks keep
	Mixed      bool          // each process has settings of its own, near these
	Poll       time.Duration // 0: the default
	Drain      time.Duration
	Calm       time.Duration // the greatest latency each way in calm weather
	Wild       time.Duration // how far clocks may be stepped in a storm; 0: no further than Skew
	Drift      float64       // of all clocks at most, in seconds a second
	Length     time.Duration // how long it goes on, at least

	Hold  time.Duration // the longest Hold of a process; 0: none has one
	Ranks int           // Priority, which is only on record, is one of so many; 0: all are alike
	Paced bool          // some processes have an ExtendEvery of their own

	Lifelines bool // most processes have a lifeline, on one of two machines

	Stamp   time.Duration // the unit of the store's own time, which is true; 0: it does not say
	Backups bool          // the store is set back to an earlier record now and then
	Lag     bool          // every second read comes from a replica that is stuck, also in calm weather
	Nags    bool          // an operator asks dead leaders to hand over, again and again, also in calm weather
	Astray  bool          // operators' clocks are off by anything up to hours
	Bounded bool          // some clocks know how far they may be off

	Skewed int           // so many hosts have clocks beyond their bound
	Lies   time.Duration // by this much at most

	Strangers bool // others' tools change the record

	Pauses time.Duration // the store asks for pauses of this length at most, when calls fail; 0: it does not

	Unsynchronized int           // so many hosts have Unsynchronized set
	Apart          time.Duration // how far their clocks may be from true time
}

// allowance is what two monotonic clocks may run apart in the longest term.
func (p *Params) allowance() time.Duration { return max(p.Skew, p.longest()/100) }

// uneven is by how much at most an unsynchronized candidate's monotonic clock is too fast or too
// slow, so that two of them are apart by the allowance.
func (p *Params) uneven() float64 {
	if p.Unsynchronized == 0 {
		return 0
	}
	return float64(p.allowance()) / float64(p.longest()) / 2
}

// DrawSkewed returns the simulation of a seed in which some hosts' clocks are
// beyond their bound, and the store gives true time to the microsecond.
func DrawSkewed(seed uint64) Params {
	p := Draw(seed)
	rng := rand.New(rand.NewPCG(seed, 6))
	if p.Skew == 0 {
		p.Skew = p.Term / 15
	}
	p.Stamp, p.Backups, p.Twins, p.Astray = time.Microsecond, rng.IntN(4) == 0, false, false
	p.Skewed = 1 + rng.IntN(p.Hosts-1)
	p.Lies = []time.Duration{3 * p.Skew, p.Term, 10 * p.Term, 5 * time.Hour}[rng.IntN(4)]
	return p
}

// DrawUnsynchronized returns the simulation of a seed in which candidates have no clock
// in common: all of them, or some among others whose clocks keep their bound.
func DrawUnsynchronized(seed uint64) Params {
	p := Draw(seed)
	rng := rand.New(rand.NewPCG(seed, 7))
	p.Backups = rng.IntN(4) == 0
	p.Unsynchronized, p.Apart = p.Hosts, 5*time.Hour
	if rng.IntN(2) == 0 {
		p.Unsynchronized = 1 + rng.IntN(p.Hosts-1)
	}
	if rng.IntN(3) == 0 {
		p.Skew = 0 // the allowance is a hundredth of the term then
	}
	return p
}

func (p Params) String() string {
	return fmt.Sprintf("seed %d: %d candidates (twins: %v), feed: %v, TermLength %v, MaxClockSkew %v, PollInterval %v, DrainTimeout %v (mixed: %v), the store's time in units of %v, set back: %v, a replica lags: %v, operators nag: %v, and are astray: %v, bounded clocks: %v, skewed candidates: %d, unsynchronized candidates: %d, Hold up to %v, ranks: %d, paced: %v, lifelines: %v, strangers: %v, pauses up to %v",
		p.Seed, p.Hosts, p.Twins, p.Feed, p.Term, p.Skew, p.Poll, p.Drain, p.Mixed, p.Stamp, p.Backups, p.Lag, p.Nags, p.Astray, p.Bounded, p.Skewed, p.Unsynchronized, p.Hold, p.Ranks, p.Paced, p.Lifelines, p.Strangers, p.Pauses)
}

// Draw returns the simulation of a seed.
func Draw(seed uint64) Params {
	rng := rand.New(rand.NewPCG(seed, 0))
	between := func(a, b time.Duration) time.Duration { return a + time.Duration(rng.Int64N(int64(b-a))) }
	p := Params{Seed: seed, Hosts: 2 + rng.IntN(5), Twins: rng.IntN(8) == 0, Feed: rng.IntN(2) == 0, Tells: rng.IntN(4) == 0, Length: 10 * time.Minute}
	switch n := rng.IntN(20); {
	case n < 6:
		p.Term, p.Skew = 15*time.Second, time.Second
	case n < 9:
		p.Term = between(2*time.Second, 30*time.Second)
	case n < 12:
		p.Skew = between(500*time.Millisecond, 15*time.Second)
		p.Term = 2 * p.Skew
	case n < 13: // odd small ones, for fewer virtual minutes: as many terms
		p.Term = between(100*time.Millisecond, time.Second)
		p.Skew = between(0, p.Term/3)
		p.Length = 200 * p.Term
	default:
		p.Term = between(2*time.Second, time.Minute)
		p.Skew = between(0, p.Term/2)
	}
	if rng.IntN(2) == 0 {
		p.Poll = between(p.Term/10, 2*p.Term)
	}
	p.Drain = p.Term
	if rng.IntN(3) == 0 {
		p.Drain = between(p.Term/10, 3*p.Term)
	}
	p.Calm = min(p.Term/100, 50*time.Millisecond)
	p.Drift = 1e-4 * rng.Float64()
	more := rand.New(rand.NewPCG(seed, 5))
	p.Stamp = []time.Duration{0, 1, time.Microsecond, time.Millisecond, time.Second}[more.IntN(5)]
	p.Backups = more.IntN(6) == 0
	p.Mixed = more.IntN(2) == 0
	p.Lag, p.Nags, p.Astray, p.Bounded = more.IntN(5) == 0, more.IntN(3) == 0, more.IntN(4) == 0, more.IntN(4) == 0
	p.drawWishes(rand.New(rand.NewPCG(seed, 8)))
	p.Lifelines = rand.New(rand.NewPCG(seed, 10)).IntN(2) == 0
	if rng := rand.New(rand.NewPCG(seed, 11)); rng.IntN(4) == 0 {
		p.Pauses = []time.Duration{p.Term / 4, 2 * p.Term, 2 * time.Minute, 24 * time.Hour}[rng.IntN(4)]
	}
	return p
}

// drawWishes draws what candidates ask for beyond a lease: holds, ranks, and a pace.
func (p *Params) drawWishes(rng *rand.Rand) {
	if rng.IntN(3) == 0 {
		p.Hold = p.Term/4 + time.Duration(rng.Int64N(int64(3*p.Term)))
	}
	if rng.IntN(3) == 0 {
		p.Ranks = 2 + rng.IntN(2)
	}
	p.Paced = rng.IntN(2) == 0
}

// backoff is a leader's longest pause between two attempts at what fails: the greater
// of an eighth of a term and half a second (twice a base of a quarter to one
// second), half a minute at most, and a quarter more for the jitter.
func backoff(term time.Duration) time.Duration {
	base := min(max(term/32, 250*time.Millisecond), time.Second)
	return max(min(term/8, 30*time.Second), 2*base) * 5 / 4
}

// standoff is a standby's longest pause: twice PollInterval, or twice a term if that is shorter,
// and a quarter more for the jitter.
func (p *Params) standoff() time.Duration {
	return max(min(p.poll(), p.longest()), 250*time.Millisecond) * 5 / 2
}

// poll is the longest time between two polls of a standby.
func (p *Params) poll() time.Duration {
	switch {
	case p.Mixed:
		return p.longest()
	case p.Poll == 0:
		return p.Term / 2
	}
	return p.Poll
}

// leaderWithin is how long after the last fault there is a leader again, at most:
//
//   - TermLength + 2 MaxClockSkew, for which a record that the last fault left
//     behind binds everybody, as seen by a clock that is behind by MaxClockSkew;
//   - MaxClockSkew again, since the one who wrote it may have been ahead by that;
//   - or, where that is longer, the Hold of the last that led, which counts from when it began
//     to: where clocks are not compared, or one was wrong, from when its vacancy was first seen,
//     and with the allowance for each term of it;
//   - or, if that is longer, PollInterval, after which those ask again that are sick, or
//     the standoff of those whose last calls have failed, or the pause that the store has then
//     asked for, a minute at most: all these began before the last fault ended;
//   - an operation that was under way when the faults ended, and a check of
//     health, may be answered never, and are given up after TermLength/4 each;
//   - a leader's read, and its write, may each wait for their longest back-off;
//   - a leader that has been frozen looks at its clocks within a second, and a
//     few answers take the calm latency each.
//
// Where clocks were out of bounds, a record may end later by as much as one was.
// A reservation by an operator whose clock was counts for a term from when it was first
// seen, after a standoff. A clock that knows its bound is read four times a term. If every
// second read is a stale one, a write may fail by that, and a poll see nothing.
//
// If clocks are not compared, what counts is when a challenger has seen the
// record change: after a standoff; or if a feed has fallen silent and all seems
// well, after the whole of a wait, which is TermLength and the allowance. Then it
// waits that long, once more or for the first time; all by its own clock.
func (p *Params) leaderWithin() time.Duration {
	if p.Unsynchronized > 0 {
		return p.measuredWithin()
	}
	term, skew := p.longest(), p.mostSkew()
	bound := term + 3*skew + p.Wild
	if p.beyond() && p.Hold == 0 {
		bound = min(bound, p.seen()+max(2*term, term+3*skew))
	}
	rest := p.rest()
	if p.Astray {
		rest += p.seen()
	}
	return max(bound, p.seen()) + p.mostHold(term) + rest
}

// beyond reports whether clocks may be beyond their bound, so that a record may say anything of its end.
func (p *Params) beyond() bool { return p.Wild > 0 || p.Skewed > 0 }

// seen is how long it takes at most until a candidate that polls has seen what is on record.
func (p *Params) seen() time.Duration { return max(p.poll(), p.standoff(), min(p.Pauses, time.Minute)) }

// rest is what comes to any wait.
func (p *Params) rest() time.Duration {
	term := p.longest()
	rest := 2*(term/4) + 2*backoff(term) + time.Second + 20*p.Calm
	if p.Bounded {
		rest += term / 4
	}
	if p.Lag {
		rest += 3 * p.standoff()
	}
	if p.Strangers { // an emptied record is waited for from when it is seen
		rest += p.seen() + p.allowance()
	}
	return rest
}

// measuredWithin is leaderWithin, if the last leadership rests on monotonic clocks.
func (p *Params) measuredWithin() time.Duration {
	wait := p.measuredWait()
	all := max(wait, p.seen()) + max(wait, p.longest()+3*p.mostSkew()) + p.mostHold(p.longest()) + p.rest()
	return time.Duration(float64(all) / (1 - p.uneven()))
}

// measuredWait is how long whoever compares no clocks waits for a term, from when it has seen that, and how long
// it is quiet.
func (p *Params) measuredWait() time.Duration {
	return p.longest() + max(p.mostSkew(), p.longest()/100)
}

// believed reports whether clocks are beyond their bound, and nothing shows it.
func (p *Params) believed() bool { return p.Skewed > 0 && p.Stamp == 0 }

// mostHold is for how long a record is nobody's beyond its term, by anybody's clock.
func (p *Params) mostHold(term time.Duration) time.Duration {
	return p.Hold + time.Duration(float64(p.Hold)*float64(max(p.mostSkew(), term/100))/float64(p.Term/2))
}

// opsBound is how many store calls one candidate makes in a second, at most: its
// extensions and its polls, and while things fail a read and a write each time
// the shortest back-off has passed; and a few more at the edges.
func opsBound(extend, poll time.Duration, uneven float64) int {
	every := func(d time.Duration) int {
		return int(float64(time.Second)*(1+uneven)/float64(max(d, time.Millisecond))) + 1
	}
	return every(extend) + every(poll) + 2*every(250*time.Millisecond) + 4
}
