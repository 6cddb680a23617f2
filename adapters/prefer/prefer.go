// Package prefer lets a preferred candidate take over from a less preferred leader, by way of
// [leaderelection.Transfer]. It is a client of the public API: the election itself knows nothing of it, and
// neither who leads after a crash nor safety depends on it.
package prefer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// settled is for how many terms a leader must be seen to lead before it is asked. So a candidate that crashes
// whenever it leads, and is started again, does not ask more often.
const settled = 4

// Over asks the leader to hand over to the candidate of cfg, whenever that candidate has stood by under a leader with a
// smaller Config.Priority for about four terms. Call it beside the campaign of that Config, in a goroutine
// of its own. It returns context.Cause(ctx) when ctx ends, or the error with which the store refuses to be followed
// for good.
//
// A leader is not asked while it has a Hold, or has been asked to hand over already, nor while the candidate is not
// Healthy. Each request that does not make the candidate lead doubles the time until the next: a
// candidate that cannot lead, since its clock is wrong for example, disturbs the election ever less.
func Over(ctx context.Context, candidate leaderelection.Candidate, cfg leaderelection.Config) error {
	if cfg.Clock == nil {
		cfg.Clock = clocks.System()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	term := cfg.TermLength
	if term == 0 {
		term = leaderelection.DefaultTermLength
	}
	p := &preferred{cfg: cfg, news: make(chan struct{}, 1)}
	watching, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	defer func() { stop(nil); <-watched }()
	go func() {
		defer close(watched)
		w := leaderelection.WatchConfig{Decider: cfg.Decider, MaxClockSkew: cfg.MaxClockSkew, ClockPolicy: cfg.ClockPolicy, PollInterval: cfg.PollInterval, Clock: cfg.Clock, Logger: cfg.Logger}
		stop(w.Watch(watching, func(_ context.Context, e leaderelection.RaceEntry) { p.note(e) }))
	}()
	stand := settled * term
	for {
		under := p.await(watching)
		if under == nil {
			return context.Cause(watching)
		}
		if !p.stays(watching, under, stand) {
			continue
		}
		if candidate.Status() != leaderelection.Following || cfg.Healthy != nil && cfg.Healthy(watching) != nil {
			if !cfg.Clock.SleepFor(watching, term) {
				return context.Cause(watching)
			}
			continue
		}
		cfg.Logger.Info("leaderelection: asking a less preferred leader to hand over", "id", cfg.LeaderID, "leader", under.LeaderID,
			"token", uint64(under.ElectionNumber), "priority", cfg.Priority, "leader_priority", under.Priority)
		asking, cancel := context.WithTimeout(watching, term)
		err := leaderelection.Transfer(asking, cfg.Decider, cfg.LeaderID)
		cancel()
		if err != nil && !errors.Is(err, leaderelection.ErrLostRace) && !errors.Is(err, leaderelection.ErrNoLeader) {
			cfg.Logger.Warn("leaderelection: asking a less preferred leader to hand over has failed", "id", cfg.LeaderID, "err", err)
		}
		if !cfg.Clock.SleepFor(watching, 2*term) {
			return context.Cause(watching)
		}
		if stand = min(2*stand, leaderelection.MaxTermLength); candidate.Status() != leaderelection.Following {
			stand = settled * term
		}
	}
}

// preferred is what is known of the leader.
type preferred struct {
	cfg  leaderelection.Config
	news chan struct{} // has room for one

	mu     sync.Mutex
	leader leaderelection.RaceEntry
}

func (p *preferred) note(e leaderelection.RaceEntry) {
	p.mu.Lock()
	p.leader = e
	p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// below returns the record of a leader that may be asked, or nil.
func (p *preferred) below() *leaderelection.RaceEntry {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.leader
	if e.Vacant() || e.LeaderID == p.cfg.LeaderID || e.Priority >= p.cfg.Priority || e.Successor != "" || e.Hold > 0 {
		return nil
	}
	return &e
}

// await waits for a leader that may be asked. It returns nil when ctx has ended.
func (p *preferred) await(ctx context.Context) *leaderelection.RaceEntry {
	for ctx.Err() == nil {
		if e := p.below(); e != nil {
			return e
		}
		select {
		case <-p.news:
		case <-ctx.Done():
		}
	}
	return nil
}

// stays reports whether the leader of under may still be asked when it has led on for d.
func (p *preferred) stays(ctx context.Context, under *leaderelection.RaceEntry, d time.Duration) bool {
	for left := d; left > 0; left -= d / 8 {
		if !p.cfg.Clock.SleepFor(ctx, d/8) {
			return false
		}
		if e := p.below(); e == nil || e.ElectionNumber != under.ElectionNumber || e.Incarnation != under.Incarnation {
			return false
		}
	}
	return true
}
