package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// Transfer asks the leader to hand over to leaderID: to wind down as for Resign
// and release the record with leaderID named in it, which may then acquire it at
// once, the others a term later. It may be called from any process, and takes
// nothing from the leader: neither its place nor its term.
//
// If no candidate of that name stands, nobody leads until the reservation is over.
//
// Transfer returns nil when the request is on record, which is before it is granted
// (Watch shows when); also where leaderID leads already. On a record that is
// vacant it writes the reservation itself. It aims at the leadership that it first reads:
// where another has begun meanwhile, it returns an error that wraps ErrLostRace. Where nobody can be asked, since nobody has led yet or the term
// has run out, or the record is on hold (Config.Hold), it returns one that wraps ErrNoLeader: then the election finds the
// next leader by itself. Other errors of the store are retried until ctx ends,
// but for an ErrPermanent.
func Transfer(ctx context.Context, d RaceDecider, leaderID string) error {
	switch leaderID {
	case "":
		return errors.New("leaderelection: Transfer: leaderID is empty: name the candidate to hand over to")
	case AnySuccessor:
		return fmt.Errorf("leaderelection: Transfer: %q is reserved for AnySuccessor: use StepDown", leaderID)
	}
	return handOver(ctx, d, leaderID)
}

// StepDown asks the leader to wind down and release the record, and to cool down for
// one term, whoever comes next. It is Transfer to AnySuccessor: the same holds
// for what it returns, but on a vacant record there is nobody to ask.
func StepDown(ctx context.Context, d RaceDecider) error {
	return handOver(ctx, d, AnySuccessor)
}

// handOver puts the request on record.
func handOver(ctx context.Context, d RaceDecider, successor string) error {
	if d == nil {
		return errors.New("leaderelection: hand-over: the RaceDecider is nil")
	}
	var first *RaceEntry
	clock := clocks.System()
	pause, _ := backoffs(clock.Now().String(), DefaultTermLength)
	began := newTimekeeper(clock)
	for {
		start := began.now()
		e, err := readCurrent(ctx, d)
		if err == nil {
			if first == nil {
				first = e
			}
			var request *RaceEntry
			request, err = requestFor(first, e, successor, start.wall)
			switch {
			case request == nil:
				return err // on record already, or out of reach
			default:
				if err = request.damaged(); err == nil {
					_, err = d.WriteEntry(ctx, request)
				}
				if err == nil {
					return nil
				}
			}
		}
		// A lost race or a lost answer: the record says which.
		if errors.Is(err, ErrPermanent) {
			return fmt.Errorf("leaderelection: asking for a hand-over to %q: %w", successor, err)
		}
		pause.failed(start.mono)
		if !clock.SleepFor(ctx, pause.notBefore-began.now().mono) {
			return fmt.Errorf("leaderelection: asking for a hand-over to %q: %w (last: %w)", successor, context.Cause(ctx), err)
		}
	}
}

// requestFor returns the record that puts the request on e, or nil: where it is on
// record already, or with an error where it cannot be.
func requestFor(first, e *RaceEntry, successor string, now time.Time) (*RaceEntry, error) {
	request := e.Clone()
	request.Extension++
	request.Successor = successor
	switch {
	case e.ElectionNumber == NoElections:
		return nil, fmt.Errorf("%w: nobody has led yet", ErrNoLeader)
	case e.LeaderID == successor && e.Successor != "" && e.Successor != successor:
		return nil, fmt.Errorf("leaderelection: %q leads, but was asked to hand over to %q already: wait until it has", e.LeaderID, e.Successor)
	case e.LeaderID == successor:
		return nil, nil
	case successor == AnySuccessor && !first.Vacant() && (e.Vacant() || e.ElectionNumber != first.ElectionNumber):
		return nil, nil // whoever was to step down has gone meanwhile
	case e.ElectionNumber != first.ElectionNumber:
		return nil, fmt.Errorf("leaderelection: asking for a hand-over to %q: election %d has ended, and now %q leads with election %d: %w",
			successor, first.ElectionNumber, e.LeaderID, e.ElectionNumber, ErrLostRace)
	case e.Vacant() && successor == AnySuccessor:
		return nil, fmt.Errorf("%w: election %d was given up already", ErrNoLeader, e.ElectionNumber)
	case e.Vacant() && e.Hold > 0: // whether that is over, an operator's clock may not decide
		return nil, fmt.Errorf("%w: election %d was given up, and is held for nobody until %v; whoever stands then acquires it", ErrNoLeader, e.ElectionNumber, e.TermExpiry.Add(min(e.Hold, MaxTermLength)).Format(time.RFC3339))
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
	case !now.Before(e.TermExpiry) && !e.Unsynchronized: // whose term one look cannot tell of
		return nil, fmt.Errorf("%w: the term of %q ran out at %v", ErrNoLeader, e.LeaderID, e.TermExpiry.Format(time.RFC3339))
	case e.Successor == successor:
		return nil, nil
	}
	return request, nil
}
