package leaderelection

import (
	"errors"
	"fmt"
	"time"
)

// Errors of the package's functions, of deciders, and of what is built on them. Test with
// errors.Is.
var (
	// ErrConfig means that a Config, a WatchConfig or options are wrong. The error that wraps
	// it names all faults at once.
	ErrConfig = errors.New("leaderelection: the configuration is wrong")

	// ErrNotLeading means that this process does not lead, or leads no more. Routers, fences
	// and adapters return it for work that only the leader may do. It is also the cause with
	// which the ctx of a request let in by lehttp or legrpc ends when the view does.
	ErrNotLeading = errors.New("leaderelection: this process does not lead")

	// ErrLostRace means that the stored version is not the version at which the entry was
	// read. A RaceDecider's WriteEntry returns it. It does not prove that another candidate
	// won: if a store's client retries a write that had landed, the retry fails the same way.
	ErrLostRace = errors.New("leaderelection: lost the race: the record is no longer the version it was read at")

	// ErrPermanent means that no retry can help: no such bucket, no permission, a record that
	// is not ours. It ends Acquire, Run and Watch only while nothing has worked yet. Later
	// it is reported and the call is retried, since what has worked may work again.
	ErrPermanent = errors.New("leaderelection: no retry can help")

	// ErrDenied is an ErrPermanent that may pass by itself: credentials or permissions are
	// refused. A server that has just started may do so, or a service that a new permission
	// has not reached yet. Before anything has worked, it ends a campaign only if it has
	// been the answer for a term.
	ErrDenied = fmt.Errorf("leaderelection: access was denied: %w", ErrPermanent)

	// ErrNotElected means that another candidate has the record, or that nobody may acquire it
	// for some time (OnceOptions.Hold). TryAcquire and Once return it as a *NotElectedError.
	ErrNotElected = errors.New("leaderelection: not elected: another has it")

	// ErrNotBegun means that a job of Once could not begin, and has done nothing. The job
	// returns an error that wraps it. Then the record is released without its Hold, and
	// another candidate may run the job.
	ErrNotBegun = errors.New("leaderelection: the job was not begun")

	// ErrNoLeader means that there is nobody to ask: nobody has led yet, the term has run out,
	// or the record is on hold. Transfer and StepDown return it.
	ErrNoLeader = errors.New("leaderelection: there is no leader to ask")

	// ErrRefused means that an operator's request would do harm now, and nothing was written. The
	// text says why, until when, and what can be forced. Transfer, StepDown and Reset return it.
	ErrRefused = errors.New("leaderelection: refused")
)

// Causes of the end of a leader's ctx: context.Cause returns one of them. If the ctx given to
// Start ended the leadership, context.Cause returns the cause of that ctx instead. Right after a
// suspend of the machine the view is over before ctx is: then the cause is still nil.
var (
	// ErrOusted means that another candidate has taken the record.
	ErrOusted = errors.New("leaderelection: ousted: another candidate holds the record")
	// ErrExpired means that the view ended before an extension was confirmed.
	ErrExpired = errors.New("leaderelection: the term ran out before an extension was confirmed")
	// ErrResigned means that Resign was called, or that a Transfer or a StepDown asked for a hand-over,
	// as package prefer does.
	ErrResigned = errors.New("leaderelection: resigned")
	// ErrUnhealthy means that Config.Healthy returned an error, or did not return in time.
	ErrUnhealthy = errors.New("leaderelection: stood down: not healthy")
	// ErrClockSkew means that this machine's clock is proved to be off by more than
	// MaxClockSkew. The cause is a *ClockSkewError, which says by how much.
	ErrClockSkew = errors.New("leaderelection: the clock is off by more than MaxClockSkew")
)

// LostRaceError is an ErrLostRace with facts. A decider returns it from WriteEntry. If its store
// returns the current record along with the refusal, Current saves the campaign a read.
type LostRaceError struct {
	// Place names where the record is kept: bucket and object, table and key.
	Place string
	// Current is the record as it was when the write was refused, with its Token, or nil if
	// the store did not return it.
	Current *RaceEntry
	// Err is the error of the store's client, or nil.
	Err error
}

// Error names the place and, if known, the holder.
func (e *LostRaceError) Error() string {
	s := "leaderelection: lost the race for " + e.Place
	if e.Current != nil {
		s += fmt.Sprintf(" (held by %q, token %d, extension %d)", e.Current.LeaderID, e.Current.ElectionNumber, e.Current.Extension)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is ErrLostRace.
func (e *LostRaceError) Is(target error) bool { return target == ErrLostRace }

// Unwrap returns Err.
func (e *LostRaceError) Unwrap() error { return e.Err }

// RetryAfterError is the error of a store that has asked for a pause, as HTTP's Retry-After does. A
// RaceDecider returns it, or wraps it, if its store's answer says so. The candidates and observers
// that stand by send nothing before the pause is over. A leader waits too, but for no longer than
// half of what is left of its view; one that leaves, or whose acquisition may have happened, for
// half of the time that it has. If a ChangeFeed returns it, the feed alone waits. More than a
// minute counts as a minute.
type RetryAfterError struct {
	// After is the pause, from when the answer was received.
	After time.Duration
	// Err is the error of the store's client.
	Err error
}

// Error is Err's text, with the pause.
func (e *RetryAfterError) Error() string {
	return fmt.Sprintf("%v (the store asks for a pause of %v)", e.Err, e.After)
}

// Unwrap returns Err.
func (e *RetryAfterError) Unwrap() error { return e.Err }

// NotElectedError is an ErrNotElected with facts. TryAcquire and Once return it.
type NotElectedError struct {
	// Leader is the record as it was found last, without its Token. It names the leader, and
	// until when. It is vacant if the record is reserved for another candidate, on hold, or
	// emptied.
	Leader RaceEntry
}

// Error names the leader, or says why nobody may acquire the record now.
func (e *NotElectedError) Error() string {
	l := &e.Leader
	until := l.TermExpiry.Add(min(l.Hold, MaxTermLength)).Format(time.RFC3339)
	switch {
	case !l.Vacant():
		return fmt.Sprintf("%v: %q leads with token %d", ErrNotElected, l.LeaderID, l.ElectionNumber)
	case l.Emptied:
		return "leaderelection: not elected: the record was emptied, and somebody may lead by what it said: it is left alone for a term"
	case l.Hold > 0:
		return fmt.Sprintf("leaderelection: not elected: the leadership with token %d is over, and nobody leads until %s: that is its Hold", l.ElectionNumber, until)
	case l.Successor != "":
		return fmt.Sprintf("%v: it is reserved for %q until %s", ErrNotElected, l.Successor, until)
	}
	return fmt.Sprintf("leaderelection: not elected: another was faster to take what follows token %d", l.ElectionNumber)
}

// Is reports whether target is ErrNotElected.
func (e *NotElectedError) Is(target error) bool { return target == ErrNotElected }
