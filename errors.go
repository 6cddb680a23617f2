package leaderelection

import (
	"errors"
	"fmt"
	"time"
)

// What deciders and the operator's calls report. Test with errors.Is.
var (
	// ErrLostRace is what a RaceDecider's WriteEntry returns where the stored
	// version is not the one that the entry was read at. It is a question, not
	// yet an answer: a store client's own retry of a write that had landed
	// says the same.
	ErrLostRace = errors.New("leaderelection: lost the race: the record is no longer the version it was read at")

	// ErrPermanent marks what no retry can cure: no such bucket, no
	// permission, a record that is not ours. It ends Acquire, Run and Watch
	// only while nothing has worked yet; later it is reported and retried,
	// since what has worked may work again.
	ErrPermanent = errors.New("leaderelection: no retry can help")

	// ErrNotElected is what TryAcquire and Once return where another has the record, or
	// it is held for nobody until a time (Config.Hold). It comes as a *NotElectedError.
	ErrNotElected = errors.New("leaderelection: not elected: another has it")

	// ErrNoLeader is what Transfer and StepDown return where there is nobody
	// to ask: no election yet, or the term has run out.
	ErrNoLeader = errors.New("leaderelection: there is no leader to ask")
)

// The causes of the end of a leader's ctx, for context.Cause. When the ctx
// given to Start ended the leadership, its own cause is used.
var (
	// ErrOusted: another candidate has taken the record.
	ErrOusted = errors.New("leaderelection: ousted: another candidate holds the record")
	// ErrExpired: the view ended before an extension was confirmed.
	ErrExpired = errors.New("leaderelection: the term ran out before an extension was confirmed")
	// ErrResigned: Resign was called, or an operator's Transfer or StepDown
	// asked for it.
	ErrResigned = errors.New("leaderelection: resigned")
	// ErrUnhealthy: Config.Healthy said so, or did not answer in time.
	ErrUnhealthy = errors.New("leaderelection: stood down: not healthy")
	// ErrClockSkew: this machine's clock is proved to be off by more than
	// MaxClockSkew. The cause is a *ClockSkewError, which says by how much.
	ErrClockSkew = errors.New("leaderelection: the clock is off by more than MaxClockSkew")
)

// LostRaceError is an ErrLostRace with facts. A decider whose store returns the
// current record along with the refusal hands it on here, which saves the
// campaign a read.
type LostRaceError struct {
	// Place is where the record is kept: bucket and object, table and key.
	Place string
	// Current is the record as it was when the write was refused, with its
	// Token, or nil where the store did not say.
	Current *RaceEntry
	// Err is what the store's client returned, or nil.
	Err error
}

// Error names the place and, where known, the holder.
func (e *LostRaceError) Error() string {
	s := "leaderelection: lost the race for " + e.Place
	if e.Current != nil {
		s += fmt.Sprintf(" (held by %q, election %d, extension %d)", e.Current.LeaderID, e.Current.ElectionNumber, e.Current.Extension)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is says that a LostRaceError is an ErrLostRace.
func (e *LostRaceError) Is(target error) bool { return target == ErrLostRace }

// Unwrap returns what the store's client returned.
func (e *LostRaceError) Unwrap() error { return e.Err }

// NotElectedError is an ErrNotElected with facts.
type NotElectedError struct {
	// Leader is the record as it was found last, without its Token: whose it is, and
	// until when. Vacant where it is reserved for another, or on hold.
	Leader RaceEntry
}

// Error says who has it.
func (e *NotElectedError) Error() string {
	l := &e.Leader
	until := l.TermExpiry.Add(min(l.Hold, MaxTermLength)).Format(time.RFC3339)
	switch {
	case !l.Vacant():
		return fmt.Sprintf("%v: %q leads with election %d", ErrNotElected, l.LeaderID, l.ElectionNumber)
	case l.Hold > 0:
		return fmt.Sprintf("leaderelection: not elected: election %d is over, and nobody leads until %s: that is its Hold", l.ElectionNumber, until)
	case l.Successor != "":
		return fmt.Sprintf("%v: it is reserved for %q until %s", ErrNotElected, l.Successor, until)
	}
	return fmt.Sprintf("leaderelection: not elected: another was faster to take what follows election %d", l.ElectionNumber)
}

// Is says that a NotElectedError is an ErrNotElected.
func (e *NotElectedError) Is(target error) bool { return target == ErrNotElected }
