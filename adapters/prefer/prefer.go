// Package prefer lets a preferred candidate take over from a less preferred leader, by way of
// [leaderelection.Transfer]. It is a client of the public API: the election itself knows nothing of it, and
// neither who leads after a crash nor safety depends on it.
package prefer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// settled is for how many terms a leader must be seen to lead before it is asked. So a candidate that crashes
// whenever it leads, and is started again, does not ask more often.
const settled = 4

// Over asks the leader to hand over to the candidate of cfg, whenever that candidate has stood by under a leader with a
// smaller Config.Priority for about four terms. Call it beside the campaign of that Config, in a goroutine
// of its own. It returns context.Cause(ctx) when ctx ends, and only then.
//
// A leader is not asked while it has a Hold, or has been asked to hand over already, nor while the candidate is not
// Healthy. Each request that does not make the candidate lead doubles the time until the next: a
// candidate that cannot lead, since its clock is wrong for example, disturbs the election ever less.
//
// Over goes by what the campaign knows. It asks the store nothing until it is to make a request.
func Over(ctx context.Context, candidate leaderelection.Candidate, cfg leaderelection.Config) error {
	if cfg.Clock == nil {
		cfg.Clock = clocks.System()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.TermLength == 0 {
		cfg.TermLength = leaderelection.DefaultTermLength
	}
	first := settled * cfg.TermLength
	var under leaderelection.RaceEntry // of the leadership that the candidate stands by under
	for stood, enough, tick := time.Duration(0), first, cfg.TermLength/2; cfg.Clock.SleepFor(ctx, tick); {
		status, e := candidate.Status(), candidate.Leader()
		if status == leaderelection.Leading {
			enough = first
		}
		if e.ElectionNumber != under.ElectionNumber || e.Incarnation != under.Incarnation || !below(&cfg, &e) {
			under, stood = e, 0
			continue
		}
		stood += tick
		if stood >= enough && status == leaderelection.Following && (cfg.Healthy == nil || cfg.Healthy(ctx) == nil) && ask(ctx, &cfg, &e) {
			stood, enough = 0, min(2*enough, leaderelection.MaxTermLength)
		}
	}
	return context.Cause(ctx)
}

// below reports whether e has a leader that may be asked.
func below(cfg *leaderelection.Config, e *leaderelection.RaceEntry) bool {
	return !e.Vacant() && e.LeaderID != cfg.LeaderID && e.Priority < cfg.Priority && e.Successor == "" && e.Hold == 0
}

// ask asks the leader of under to hand over. It reports whether the leader still leads, and so was asked if the store has
// allowed it.
func ask(ctx context.Context, cfg *leaderelection.Config, under *leaderelection.RaceEntry) bool {
	ctx, cancel := context.WithTimeout(ctx, cfg.TermLength)
	defer cancel()
	// A campaign that the store has not answered for long may know of a leader that is not there any more.
	e, err := cfg.Decider.ReadCurrent(ctx)
	if err == nil {
		if e.ElectionNumber != under.ElectionNumber || e.Incarnation != under.Incarnation || !below(cfg, e) {
			return false
		}
		cfg.Logger.Info("leaderelection: asking a less preferred leader to hand over", "id", cfg.LeaderID, "leader", e.LeaderID,
			"token", uint64(e.ElectionNumber), "priority", cfg.Priority, "leader_priority", e.Priority)
		err = leaderelection.Transfer(ctx, cfg.Decider, cfg.LeaderID)
	}
	if err != nil && !errors.Is(err, leaderelection.ErrLostRace) && !errors.Is(err, leaderelection.ErrNoLeader) && !errors.Is(err, context.Canceled) {
		cfg.Logger.Warn("leaderelection: asking a less preferred leader to hand over has failed", "id", cfg.LeaderID, "err", err)
	}
	return true
}
