package leaderelection

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// Transfer asks the leader to hand over to the candidate leaderID. Use it before maintenance, or
// to move leadership to a better place. Any process may call it.
//
// The leader winds down as for Resign, and releases the record with leaderID named in it. That
// candidate may then acquire the record at once, the others a term later. Transfer takes
// nothing from the leader, neither its place nor its term. If no candidate of that name
// campaigns, nobody leads until the reservation is over.
//
// Transfer returns nil when the request is on record, or if leaderID leads already. The leader
// grants the request later: Watch shows when. If the record is vacant, Transfer writes the
// reservation itself. Its errors are:
//
//   - ErrLostRace, if another leadership has begun since Transfer first read the record: the
//     request is for that first leadership only;
//   - ErrNoLeader, if nobody can be asked, because nobody has led yet, the term has run out, or
//     the record is vacant and on hold (OnceOptions.Hold): then the election finds the next
//     leader by itself;
//   - ErrRefused, if the leader has a Hold (OnceOptions.Hold): nobody else could lead before that;
//   - ErrRefused, if leaderID leads, but was asked to hand over to another candidate;
//   - ErrPermanent. Other errors of the store are retried until ctx ends.
//
// Whether a term has run out, it tells by the system clock.
func Transfer(ctx context.Context, d RaceDecider, leaderID string) error {
	if err := checkID("leaderID", leaderID); err != nil {
		return fmt.Errorf("leaderelection: Transfer: %w", err)
	}
	return handOver(ctx, d, leaderID, false)
}

// StepDown asks the leader to wind down and release the record, and to stay out for one term.
// Use it to end a leadership if any candidate may lead next. It is a [Transfer] to AnySuccessor, with
// these differences:
//
//   - If the record is vacant, there is nobody to ask: it returns an ErrNoLeader.
//   - If the leadership that it first read has ended meanwhile, it returns nil.
//   - With force it asks a leader with a Hold, too. Its job ends, and nobody runs it before the
//     Hold is over.
func StepDown(ctx context.Context, d RaceDecider, force bool) error {
	return handOver(ctx, d, AnySuccessor, force)
}

// handOver puts the request for a hand-over on record. With force it is for a leader with a Hold, too.
func handOver(ctx context.Context, d RaceDecider, successor string, force bool) error {
	if d == nil {
		return errors.New("leaderelection: hand-over: the RaceDecider is nil")
	}
	var first *RaceEntry
	clock := clocks.System()
	pause := loop.NewRetry(clock.Now().String(), DefaultTermLength/2, DefaultTermLength)
	began := newTimekeeper(clock)
	for {
		start := began.now()
		e, err := readCurrent(ctx, d)
		if err == nil {
			if first == nil {
				first = e
			}
			var request *RaceEntry
			request, err = requestFor(first, e, successor, force, start.wall)
			switch {
			case request == nil:
				return err // nil: on record already
			default:
				if _, err = writeEntry(ctx, d, request); err == nil {
					return nil
				}
			}
		}
		// A lost race or a lost answer: the record says which.
		if errors.Is(err, ErrPermanent) {
			return fmt.Errorf("leaderelection: asking for a hand-over to %q: %w", successor, err)
		}
		pause.Failed(start.mono, true)
		if !clock.SleepFor(ctx, pause.NotBefore-began.now().mono) {
			return fmt.Errorf("leaderelection: asking for a hand-over to %q: %w (last: %w)", successor, context.Cause(ctx), err)
		}
	}
}

// requestFor returns the record that adds the request to e. It returns nil if the request is on
// record already, and nil with an error if it cannot be put there.
func requestFor(first, e *RaceEntry, successor string, force bool, now time.Time) (*RaceEntry, error) {
	request := e.Clone()
	request.Extension++
	request.Successor = successor
	switch {
	case e.ElectionNumber == NoElections:
		return nil, fmt.Errorf("%w: nobody has led yet", ErrNoLeader)
	case e.LeaderID == successor && e.Successor != "" && e.Successor != successor:
		return nil, fmt.Errorf("%w: %q leads, but was asked to hand over to %q already: wait until it has", ErrRefused, e.LeaderID, e.Successor)
	case e.LeaderID == successor:
		return nil, nil
	case successor == AnySuccessor && !first.Vacant() && (e.Vacant() || e.ElectionNumber != first.ElectionNumber):
		return nil, nil // the leader that was to step down has gone meanwhile
	case e.ElectionNumber != first.ElectionNumber:
		return nil, fmt.Errorf("leaderelection: asking for a hand-over to %q: the leadership with token %d has ended, and now %q leads with token %d: %w",
			successor, first.ElectionNumber, e.LeaderID, e.ElectionNumber, ErrLostRace)
	case e.Vacant() && successor == AnySuccessor:
		return nil, fmt.Errorf("%w: the leadership with token %d was given up already", ErrNoLeader, e.ElectionNumber)
	case e.Vacant() && e.Hold > 0: // whether that is over must not depend on an operator's clock
		return nil, fmt.Errorf("%w: the leadership with token %d was given up, and is held for nobody until %v; whoever stands then acquires it", ErrNoLeader, e.ElectionNumber, e.TermExpiry.Add(min(e.Hold, MaxTermLength)).Format(time.RFC3339))
	case e.Vacant():
		if e.Successor == successor && now.Before(e.TermExpiry) && !e.Unsynchronized {
			return nil, nil
		}
		if request.TermLength <= 0 {
			request.TermLength = DefaultTermLength
		}
		request.TermLength = min(request.TermLength, MaxTermLength)
		request.TermExpiry = now.Add(request.TermLength).UTC()
		return request, nil
	case !now.Before(e.TermExpiry) && !e.Unsynchronized: // of an Unsynchronized term one look tells nothing
		return nil, fmt.Errorf("%w: the term of %q ran out at %v", ErrNoLeader, e.LeaderID, e.TermExpiry.Format(time.RFC3339))
	case e.Hold > 0 && !force: // the leader would go, and nobody could follow
		return nil, fmt.Errorf("%w: %q leads with token %d, whose Hold keeps the record until %v: nobody else can lead sooner, so it is not asked to hand over; a request to step down with force ends its job all the same",
			ErrRefused, e.LeaderID, e.ElectionNumber, e.TermExpiry.Add(min(e.Hold, MaxTermLength)).Format(time.RFC3339))
	case e.Successor == successor:
		return nil, nil
	}
	return request, nil
}

// DamagedRecordError means that the store has something in the record's place that is not a record.
// A decider's ReadCurrent returns it. It is an ErrPermanent. No candidate overwrites the
// damage; [Reset] does.
type DamagedRecordError struct {
	// Token is the version of what is stored.
	Token LeaderToken
	// Err says where the damage is, and what is wrong.
	Err error
}

// Error returns the text of Err.
func (e *DamagedRecordError) Error() string {
	if e.Err == nil {
		return "leaderelection: the record is damaged"
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *DamagedRecordError) Unwrap() error { return e.Err }

// Is reports whether target is ErrPermanent.
func (e *DamagedRecordError) Is(target error) bool { return target == ErrPermanent }

// Reset replaces a record from which the election cannot go on by a vacant one. It is for an
// operator, if the record is damaged, was deleted or restored from a backup, or has a term that
// ends in 1,000 hours.
//
// The next leadership has the number after + 1. So after must be the greatest number that any
// fence, log or backup has seen. It may be greater. If the record can be read, after must not be
// smaller than the record's number.
//
// Unless force is true, Reset refuses (ErrRefused) while the term of a leader, a hold or a
// reservation runs, and for a term longer, since clocks may differ. It also refuses if nobody can know
// that, because the record is damaged, emptied (RaceEntry.Emptied) or Unsynchronized. Force it only
// when all candidates have been stopped, or have not reached the store for a term. A candidate that is
// paused or cut off acts until its view ends, and another may lead by then.
//
// If there is no record, Reset writes one even without force. Nobody can tell then whether a
// leader of a deleted record still acts: stop all candidates before, and wait for a term. If
// nobody has led yet, Reset sets the first number, which is otherwise the seconds since 1970.
//
// Reset writes only over the record that it has judged. If the record has changed, it judges
// again. It returns nil when the vacant record is written. Other errors are the store's. It goes by
// the system clock.
func Reset(ctx context.Context, d RaceDecider, after ElectionNumber, force bool) error {
	if d == nil {
		return errors.New("leaderelection: Reset: the RaceDecider is nil")
	}
	clock := clocks.System()
	for {
		e, err := resetOf(ctx, d, after, force, clock.Now())
		if err == nil {
			_, err = writeEntry(ctx, d, e)
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ErrLostRace):
			return fmt.Errorf("leaderelection: resetting the record: %w", err)
		case !clock.SleepFor(ctx, loop.MinPause):
			return fmt.Errorf("leaderelection: resetting the record: %w (last: %w)", context.Cause(ctx), err)
		}
	}
}

// resetOf returns the record that Reset writes over the present one.
func resetOf(ctx context.Context, d RaceDecider, after ElectionNumber, force bool, now time.Time) (*RaceEntry, error) {
	if after == NoElections || after >= MaxElectionNumber {
		return nil, fmt.Errorf("after is %d: it must be the greatest fencing token that any fence has seen, from 1 to %d", after, MaxElectionNumber-1)
	}
	reset := &RaceEntry{ElectionNumber: after, TermExpiry: now.Round(0).UTC(), TermLength: DefaultTermLength, Incarnation: rand.Text()}
	e, err := d.ReadCurrent(ctx)
	var damage *DamagedRecordError
	switch {
	case errors.As(err, &damage):
		e = &RaceEntry{Token: damage.Token}
	case err != nil:
		return nil, err
	case e == nil:
		return nil, errors.New("the RaceDecider's ReadCurrent returned nil without an error")
	case e.Emptied:
		err = errors.New("the record was emptied, and what it said is not known")
	default:
		err = e.damaged()
	}
	switch {
	case err != nil && !force:
		return nil, fmt.Errorf("%w: whether anybody leads cannot be told: stop all candidates, wait for a term, and force it: %w", ErrRefused, err)
	case err == nil && after < e.ElectionNumber:
		return nil, fmt.Errorf("after is %d, and the record is at token %d already: pass that at least, and what the fences have seen", after, e.ElectionNumber)
	case err == nil && e.Extension >= uint64(MaxElectionNumber) && after == e.ElectionNumber:
		return nil, fmt.Errorf("the leadership with token %d cannot be extended any more: pass a greater token", after)
	case err == nil && !force && e.busy(now):
		return nil, fmt.Errorf("%w: the record is %s until %v: %s; to reset it all the same, stop all candidates, wait for a term, and force it", ErrRefused,
			e.whose(now), e.busyUntil().Format(time.RFC3339), e.instead(now))
	}
	reset.Token = e.Token
	if err == nil {
		reset.Extra = e.Extra
		if e.TermLength > 0 {
			reset.TermLength = e.TermLength
		}
		if e.ElectionNumber == after {
			reset.Extension, reset.Incarnation = e.Extension+1, e.Incarnation // who knows the number sees no other leadership
			if e.Vacant() {
				reset.Successor = AnySuccessor // nor a second release
			}
		}
	}
	return reset, nil
}

// busy reports whether somebody may lead by e, or may be about to.
func (e *RaceEntry) busy(now time.Time) bool {
	free := e.Vacant() && e.Hold == 0 && (e.Successor == "" || e.Successor == AnySuccessor)
	return !free && (e.Unsynchronized || now.Before(e.busyUntil()))
}

// busyUntil is a term later than e says: this clock and the leader's are each off by MaxClockSkew
// at most, and twice that is at most a term.
func (e *RaceEntry) busyUntil() time.Time {
	return e.TermExpiry.Add(min(max(e.Hold, 0), MaxTermLength)).Add(min(e.TermLength, MaxTermLength))
}

// instead says what to do instead of resetting a record that is busy.
func (e *RaceEntry) instead(now time.Time) string {
	if e.Vacant() || e.left(now) {
		return "wait until then"
	}
	return "ask the leader to step down, or wait until then"
}

// left reports whether the leader seems to have died, while its Hold keeps the record.
func (e *RaceEntry) left(now time.Time) bool {
	return !e.Vacant() && !e.Unsynchronized && e.Hold > 0 && now.After(e.TermExpiry)
}

// whose says in words what keeps the record.
func (e *RaceEntry) whose(now time.Time) string {
	switch {
	case e.left(now):
		return fmt.Sprintf("on hold by %q with token %d, which does not extend its term any more,", e.LeaderID, e.ElectionNumber)
	case !e.Vacant():
		return fmt.Sprintf("held by %q with token %d", e.LeaderID, e.ElectionNumber)
	case e.Hold > 0:
		return "on hold"
	}
	return fmt.Sprintf("reserved for %q", e.Successor)
}
