package plan

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Choice is what is planned.
type Choice struct {
	Term, Skew, Poll      time.Duration
	Unsynchronized        bool
	Candidates, Observers int
	Store                 Store
	Trials                int
	Seed                  uint64
}

// Spread is what many trials showed.
type Spread struct {
	Min    time.Duration `json:"min"`
	Median time.Duration `json:"median"`
	P99    time.Duration `json:"p99"`
	Max    time.Duration `json:"max"`
}

func spread(all []time.Duration) Spread {
	slices.Sort(all)
	at := func(q float64) time.Duration { return all[int(q*float64(len(all)-1)+0.5)] }
	return Spread{all[0], at(0.5), at(0.99), all[len(all)-1]}
}

// Result is what a choice means.
type Result struct {
	Crash    Spread        `json:"crash"`     // from the leader's death until another leads
	HandOver Spread        `json:"hand_over"` // from its being asked to go
	Outage   time.Duration `json:"outage_survived"`
	Writes   float64       `json:"writes_per_hour"`
	Reads    float64       `json:"reads_per_hour"`
	Cost     float64       `json:"dollars_per_month"`
	Typical  Trial         `json:"-"` // the crash of median length
}

// Trial is what happened in one trial, in virtual time since its beginning.
type Trial struct {
	Extended []time.Duration // when the view was moved on
	Ends     []time.Duration // and until when
	Expiry   time.Duration   // the last term's, as the record says
	Fault    time.Duration
	Elected  time.Duration // the next leader
}

// hoursPerMonth is 365 days / 12.
const hoursPerMonth = 730

// Run makes the trials.
func (c Choice) Run() (*Result, error) {
	r := &Result{}
	var crashes, handOvers []time.Duration
	var trials []Trial
	for i := range c.Trials {
		t, err := c.failOver(uint64(i), true)
		if err != nil {
			return nil, fmt.Errorf("a crash: %w", err)
		}
		trials = append(trials, t)
		crashes = append(crashes, t.Elected-t.Fault)
		if t, err = c.failOver(uint64(i), false); err != nil {
			return nil, fmt.Errorf("a hand-over: %w", err)
		}
		handOvers = append(handOvers, t.Elected-t.Fault)
	}
	r.Crash, r.HandOver = spread(crashes), spread(handOvers)
	r.Typical = slices.MinFunc(trials, func(a, b Trial) int {
		return int((a.Elected - a.Fault - r.Crash.Median).Abs() - (b.Elected - b.Fault - r.Crash.Median).Abs())
	})
	var err error
	if r.Outage, err = c.outage(); err != nil {
		return nil, fmt.Errorf("an outage: %w", err)
	}
	if err = c.steady(r); err != nil {
		return nil, fmt.Errorf("an hour: %w", err)
	}
	r.Cost = hoursPerMonth / 1e6 * (r.Writes*c.Store.Writes + r.Reads*c.Store.Reads)
	return r, nil
}

// stage is one election in a world.
type stage struct {
	c       Choice
	w       *world
	rand    *rand.Rand
	actors  []*actor
	counts  counts
	elected atomic.Pointer[actor] // the last one
	at      atomic.Int64          // when that was
	lost    atomic.Bool           // some leader's ctx has ended
	trial   Trial
}

// actor is a candidate.
type actor struct {
	campaign *leaderelection.Campaign
	stop     context.CancelFunc
	cut      atomic.Bool
	off      time.Duration
}

// newStage starts all candidates, and runs until one leads. Clocks are spread over
// all that the skew allows.
func (c Choice) newStage(seed uint64) (*stage, error) {
	s := &stage{c: c, w: newWorld(), rand: rand.New(rand.NewPCG(c.Seed, seed))}
	inner := memory.NewDecider()
	for i := range c.Candidates {
		a := &actor{}
		switch {
		case c.Unsynchronized:
			a.off = time.Duration((2*s.rand.Float64() - 1) * float64(time.Hour))
		case c.Skew > 0:
			a.off = time.Duration((2*s.rand.Float64() - 1) * float64(c.Skew))
		}
		if err := s.start(a, fmt.Sprint("c", i), inner); err != nil {
			s.close()
			return nil, err
		}
		s.actors = append(s.actors, a)
	}
	if err := s.w.run(func() bool { return s.elected.Load() != nil }, c.limit()); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// limit is more virtual time than any trial takes.
func (c Choice) limit() time.Duration { return 100*(c.Term+c.Poll) + time.Hour }

func (s *stage) start(a *actor, id string, inner *memory.Decider) error {
	l := &link{w: s.w, inner: inner.Handle(), latency: s.c.Store.Latency, cut: &a.cut, counts: &s.counts, rand: rand.New(rand.NewPCG(s.rand.Uint64(), 1))}
	var d leaderelection.RaceDecider = unstamped{l}
	if s.c.Store.Pushes {
		d = unstampedFeed{unstamped{l}, pushing{l}}
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.stop = cancel
	campaign, err := leaderelection.Config{
		Decider: d, LeaderID: id, TermLength: s.c.Term, MaxClockSkew: s.c.Skew, SharedClock: s.c.Skew == 0, PollInterval: s.c.Poll, Unsynchronized: s.c.Unsynchronized, Clock: clock{s.w, a.off},
		OnElected: func(ctx context.Context, _ *leaderelection.TimeView) {
			s.elected.Store(a)
			s.at.Store(int64(s.w.elapsed()))
			<-ctx.Done()
			s.lost.Store(true)
		},
		Trace: &leaderelection.Trace{Extended: func(e leaderelection.ViewExtended) {
			s.trial.Extended = append(s.trial.Extended, s.w.elapsed())
			s.trial.Ends = append(s.trial.Ends, e.Expiry.Sub(s.w.epoch)-a.off)
		}},
	}.Start(ctx)
	if err != nil {
		cancel()
		return err
	}
	a.campaign = campaign
	return nil
}

// close ends everything.
func (s *stage) close() {
	for _, a := range s.actors {
		a.cut.Store(false) // else each release waits for its term to run out
		a.stop()
	}
	_ = s.w.run(func() bool {
		for _, a := range s.actors {
			select {
			case <-a.campaign.Done():
			default:
				return false
			}
		}
		return true
	}, s.w.elapsed()+s.c.limit())
}

// pass lets time go by.
func (s *stage) pass(d time.Duration) error {
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.w.sleep(context.Background(), d)
	}()
	return s.w.run(func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	}, s.w.elapsed()+d+time.Hour)
}

// failOver is one trial: at some moment of a reign the leader dies, or is asked to
// go.
func (c Choice) failOver(seed uint64, crash bool) (Trial, error) {
	s, err := c.newStage(seed)
	if err != nil {
		return Trial{}, err
	}
	defer s.close()
	if err := s.pass(c.Term + time.Duration(s.rand.Float64()*float64(c.Term))); err != nil {
		return Trial{}, err
	}
	old := s.elected.Load()
	t := s.trial
	t.Extended, t.Ends = slices.Clone(t.Extended), slices.Clone(t.Ends)
	t.Expiry = t.Ends[len(t.Ends)-1] + c.Skew + old.off
	t.Fault = s.w.elapsed()
	s.elected.Store(nil)
	if crash {
		old.cut.Store(true)
	} else {
		old.stop()
	}
	if err := s.w.run(func() bool { a := s.elected.Load(); return a != nil && a != old }, t.Fault+c.limit()); err != nil {
		return Trial{}, err
	}
	t.Elected = time.Duration(s.at.Load())
	return t, nil
}

// outage is the longest outage of the store that no leader is lost to, whenever it
// begins: searched for by trying.
func (c Choice) outage() (time.Duration, error) {
	low, high := time.Duration(0), c.Term
	for high-low > c.Term/200 {
		middle := (low + high) / 2
		survived, err := c.survives(middle)
		if err != nil {
			return 0, err
		}
		if survived {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}

// survives says whether a leader keeps its reign through an outage of length d
// that begins at any of some moments between two extensions.
func (c Choice) survives(d time.Duration) (bool, error) {
	const moments = 6
	for i := range uint64(moments) {
		s, err := c.newStage(i)
		if err != nil {
			return false, err
		}
		// The worst moment is just before an extension is due: the last two are.
		share := []float64{0.1, 0.4, 0.7, 0.9, 0.97, 0.995}[i]
		err = s.pass(c.Term + time.Duration(share*float64(c.Term-c.Skew)/2))
		for _, a := range s.actors {
			a.cut.Store(true)
		}
		if err == nil {
			err = s.pass(d)
		}
		for _, a := range s.actors {
			a.cut.Store(false)
		}
		if err == nil {
			err = s.pass(c.Term)
		}
		lost := s.lost.Load()
		s.close()
		if err != nil || lost {
			return false, err
		}
	}
	return true, nil
}

// steady counts the operations of some time in which nothing happens.
func (c Choice) steady(r *Result) error {
	s, err := c.newStage(0)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.pass(c.Term); err != nil {
		return err
	}
	writes, reads := s.counts.writes.Load(), s.counts.reads.Load()
	begin := s.w.elapsed()
	if err := s.pass(20 * c.Term); err != nil {
		return err
	}
	hours := (s.w.elapsed() - begin).Hours()
	r.Writes = float64(s.counts.writes.Load()-writes) / hours
	r.Reads = float64(s.counts.reads.Load()-reads) / hours
	if c.Candidates > 1 && !c.Store.Pushes {
		// An observer reads as often as a standby.
		r.Reads += float64(c.Observers) * r.Reads / float64(c.Candidates-1)
	}
	return nil
}
