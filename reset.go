package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// DamagedRecordError is why ReadCurrent fails where the store has something that is no
// record. It wraps ErrPermanent. No candidate overwrites it; Reset does.
type DamagedRecordError struct {
	// Token is the version of what is stored.
	Token LeaderToken
	// Err says where it is, and what is wrong with it.
	Err error
}

// Error is that of Err.
func (e *DamagedRecordError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *DamagedRecordError) Unwrap() error { return e.Err }

// Reset puts a vacant record in the place of one that an election cannot go on from: a
// damaged one, one whose term ends in 1,000 hours, or one that was deleted, or restored
// from a backup. It is for an operator, and keeps the count: the next leadership has the
// number after + 1. So after must be the greatest that any fence, log or backup has seen; it
// may be greater, and not smaller than the record's own, if that can be read.
//
// Reset refuses, unless it is forced, while a leader's term runs, or a hold or a reservation.
// It also refuses if nobody can tell, since the record is damaged or its clock is not compared.
// Force it only when all candidates have been stopped, or have not reached the store for a
// term: one that is paused, or cut off, acts until its view ends, and another may lead by then.
//
// If there is no record, Reset writes one without being forced. Nobody can tell then whether
// a leader of the record that was deleted still acts. So stop all candidates before, and wait
// for a term. For an election that nobody has led yet it sets the first number.
//
// It writes on the condition that the record is what was judged, and judges anew if it is not.
// It returns nil when the vacant record is written. Other errors are the store's.
func Reset(ctx context.Context, d RaceDecider, after ElectionNumber, force bool) error {
	if d == nil {
		return errors.New("leaderelection: Reset: the RaceDecider is nil")
	}
	clock := clocks.System()
	for {
		e, err := resetOf(ctx, d, after, force, clock.Now())
		if err == nil {
			_, err = d.WriteEntry(ctx, e)
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ErrLostRace):
			return fmt.Errorf("leaderelection: resetting the record: %w", err)
		case !clock.SleepFor(ctx, minPause):
			return fmt.Errorf("leaderelection: resetting the record: %w (last: %w)", context.Cause(ctx), err)
		}
	}
}

// resetOf is the record that Reset puts in the place of the present one.
func resetOf(ctx context.Context, d RaceDecider, after ElectionNumber, force bool, now time.Time) (*RaceEntry, error) {
	if after == NoElections || after >= MaxElectionNumber {
		return nil, fmt.Errorf("after is %d: it must be the greatest ElectionNumber that any fence has seen, from 1 to %d", after, MaxElectionNumber-1)
	}
	reset := &RaceEntry{ElectionNumber: after, TermExpiry: now.Round(0).UTC(), TermLength: DefaultTermLength, Incarnation: newIncarnation()}
	e, err := d.ReadCurrent(ctx)
	var damage *DamagedRecordError
	switch {
	case errors.As(err, &damage):
		e = &RaceEntry{Token: damage.Token}
	case err != nil:
		return nil, err
	case e == nil:
		return nil, errors.New("the RaceDecider's ReadCurrent returned nil without an error")
	default:
		err = e.damaged()
	}
	switch {
	case err != nil && !force:
		return nil, fmt.Errorf("whether anybody leads cannot be told: stop all candidates, wait for a term, and force it: %w", err)
	case err == nil && after < e.ElectionNumber:
		return nil, fmt.Errorf("after is %d, and the record is at election %d already: pass that at least, and what the fences have seen", after, e.ElectionNumber)
	case err == nil && e.Extension >= uint64(MaxElectionNumber) && after == e.ElectionNumber:
		return nil, fmt.Errorf("election %d cannot be extended any more: pass a greater number", after)
	case err == nil && !force && e.busy(now):
		return nil, fmt.Errorf("the record is %s until %v: %s; to reset it all the same, stop all candidates, wait for a term, and force it",
			e.whose(now), e.TermExpiry.Add(min(e.Hold, MaxTermLength)).Format(time.RFC3339), e.instead(now))
	}
	reset.Token = e.Token
	if err == nil {
		reset.Extra = e.Extra
		if e.TermLength > 0 {
			reset.TermLength = e.TermLength
		}
		if e.ElectionNumber == after {
			reset.Extension = e.Extension + 1
		}
	}
	return reset, nil
}

// busy reports whether somebody may lead by e, or is to, by a clock that is within
// MaxClockSkew, as the leader's: both together are a term at most.
func (e *RaceEntry) busy(now time.Time) bool {
	free := e.Vacant() && e.Hold == 0 && (e.Successor == "" || e.Successor == AnySuccessor)
	until := e.TermExpiry.Add(min(max(e.Hold, 0), MaxTermLength)).Add(min(e.TermLength, MaxTermLength))
	return !free && (e.Unsynchronized || now.Before(until))
}

// instead is what to do rather than to reset a record that somebody has.
func (e *RaceEntry) instead(now time.Time) string {
	if e.Vacant() || e.left(now) {
		return "wait until then"
	}
	return "use StepDown, or wait until then"
}

// left reports whether the leader has died, as it seems, and its Hold keeps the record.
func (e *RaceEntry) left(now time.Time) bool {
	return !e.Vacant() && !e.Unsynchronized && e.Hold > 0 && now.After(e.TermExpiry)
}

// whose says who has the record.
func (e *RaceEntry) whose(now time.Time) string {
	switch {
	case e.left(now):
		return fmt.Sprintf("on hold by %q with election %d, which does not extend its term any more,", e.LeaderID, e.ElectionNumber)
	case !e.Vacant():
		return fmt.Sprintf("held by %q with election %d", e.LeaderID, e.ElectionNumber)
	case e.Hold > 0:
		return "on hold"
	}
	return fmt.Sprintf("reserved for %q", e.Successor)
}
