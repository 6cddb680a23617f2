package shard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// ErrNoGroup means that there is no assignment yet.
var ErrNoGroup = errors.New("shard: the group has no assignment yet: start its members first")

// ErrNoShard means that the group does not have the shard.
var ErrNoShard = errors.New("shard: the group has no shard")

// Operator asks a group for changes. Any process may use it.
//
// Its methods return when the change is on record. The coordinator carries it out later: it sees
// the change at once on a store that pushes, and within a term on other stores. You may repeat
// each call: if nothing changes, nothing is written.
type Operator struct {
	// Store is as in the members' Config. Required.
	Store func(name string) (leaderelection.RaceDecider, error)
}

// Pin gives a shard to the member with the given MemberID, whatever the balance says, as long as
// there is such a member and it has room. If the group does not have the shard, the error wraps
// [ErrNoShard].
func (o Operator) Pin(ctx context.Context, shard, member string) error {
	if err := checkName("the member", member); err != nil {
		return fmt.Errorf("shard: pinning %q: %w", shard, err)
	}
	return o.change(ctx, fmt.Sprintf("pinning %q to %q", shard, member), func(a *assignment) error {
		i := a.shards.index(shard)
		if i == none {
			return fmt.Errorf("%w %q", ErrNoShard, shard)
		}
		if a.pins == nil {
			a.pins = map[string]string{}
		}
		a.pins[a.shards.Name(i)] = member
		return nil
	})
}

// Unpin leaves a shard to the balance again. If the group does not have the shard, and the shard is
// not pinned either, the error wraps [ErrNoShard].
func (o Operator) Unpin(ctx context.Context, shard string) error {
	return o.change(ctx, fmt.Sprintf("unpinning %q", shard), func(a *assignment) error {
		name := a.shards.canonical(shard)
		if _, pinned := a.pins[name]; !pinned && a.shards.index(name) == none {
			return fmt.Errorf("%w %q", ErrNoShard, shard)
		}
		delete(a.pins, name)
		return nil
	})
}

// Drain moves the shards of the member with the given MemberID to other members. Use it before
// maintenance. The member keeps the shards that are pinned to it, and those for which no other
// member has room.
func (o Operator) Drain(ctx context.Context, member string) error {
	if err := checkName("the member", member); err != nil {
		return fmt.Errorf("shard: drain: %w", err)
	}
	return o.change(ctx, fmt.Sprintf("draining %q", member), func(a *assignment) error {
		if i, found := slices.BinarySearch(a.drained, member); !found {
			a.drained = slices.Insert(a.drained, i, member)
		}
		return nil
	})
}

// Undrain lets a drained member take its share again.
func (o Operator) Undrain(ctx context.Context, member string) error {
	return o.change(ctx, fmt.Sprintf("ending the draining of %q", member), func(a *assignment) error {
		if i, found := slices.BinarySearch(a.drained, member); found {
			a.drained = slices.Delete(a.drained, i, i+1)
		}
		return nil
	})
}

// change writes a changed assignment, on the condition that nobody else has changed it meanwhile.
func (o Operator) change(ctx context.Context, what string, edit func(*assignment) error) error {
	if o.Store == nil {
		return errors.New("shard: the Operator's Store is nil")
	}
	return newStores(o.Store).change(ctx, what, func(ctx context.Context, d leaderelection.RaceDecider) error {
		e, err := current(d)(ctx)
		if err != nil {
			return err
		}
		a, err := readAssignment(e)
		switch {
		case err != nil:
			return err
		case a == nil:
			return ErrNoGroup
		}
		next := a.clone()
		if err := edit(next); err != nil || next.same(a) {
			return err
		}
		next.version, next.id = a.version+1, rand.Text()
		return writeNext(ctx, d, next)
	})
}

// change calls once again until it has not lost a race.
func (s *stores) change(ctx context.Context, what string, once func(context.Context, leaderelection.RaceDecider) error) error {
	d, err := s.get(ctx, math.MaxInt64, assignmentName)
	if err != nil {
		return fmt.Errorf("shard: %s: %w", what, err)
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		switch err = once(ctx, d); {
		case err == nil:
			return nil
		case !errors.Is(err, leaderelection.ErrLostRace):
			return fmt.Errorf("shard: %s: %w", what, err)
		}
		if sleep(ctx, pause); ctx.Err() != nil {
			return fmt.Errorf("shard: %s: %w", what, context.Cause(ctx))
		}
	}
}

func writeNext(ctx context.Context, d leaderelection.RaceDecider, next *assignment) error {
	entry, err := next.entry(MaxAssignment)
	if err != nil {
		return err
	}
	entry.TermExpiry = time.Now().UTC()
	_, err = d.WriteEntry(ctx, entry)
	return err
}

// Reset replaces an assignment from which the group cannot go on by one in which nobody owns a
// shard. It is for an operator, if the assignment is damaged, was deleted or restored from a
// backup. Stop all members before, and wait for a term.
//
// Each shard's next token is greater than after, and greater than its token in the record. So after
// must be the greatest token that any fence, log or backup has seen. Pins, drained members and shards
// stay, if the record can be read.
//
// Unless force is true, Reset refuses while the term of the coordinator or of a seat runs, or if
// that cannot be told. It also refuses a record that is not an assignment that this version
// understands. With force it replaces such a record, but never an election's record that
// somebody leads.
//
// Reset writes only over the record that it has judged. It returns nil when the new assignment is
// written.
func (o Operator) Reset(ctx context.Context, after leaderelection.ElectionNumber, force bool) error {
	const what = "resetting the assignment"
	if o.Store == nil {
		return errors.New("shard: the Operator's Store is nil")
	}
	if after == 0 || after >= leaderelection.MaxElectionNumber {
		return fmt.Errorf("shard: %s: after is %d: it must be the greatest token that any fence has seen, from 1 to %d", what, after, leaderelection.MaxElectionNumber-1)
	}
	s := newStores(o.Store)
	return s.change(ctx, what, func(ctx context.Context, d leaderelection.RaceDecider) error {
		e, damaged, err := readDamaged(ctx, d)
		if err != nil {
			return err
		}
		a, foreign := readAssignment(e)
		if a == nil {
			a = &assignment{}
		}
		if !force {
			if err := s.seatsAreFree(ctx, a.seats()); err != nil {
				return err
			}
		}
		switch unclear := cmp.Or(damaged, foreign); {
		case !e.Vacant():
			return unclear // an election's
		case unclear != nil && !force:
			return fmt.Errorf("it cannot be told what is there: make sure that it is this group's, stop all members, wait for a term, and force it: %w", unclear)
		}
		return writeNext(ctx, d, a.reset(e, uint64(after), time.Now()))
	})
}

// reset returns what replaces the record e, from which a was read. Nobody owns a shard in it, and every
// token is after at least.
func (a *assignment) reset(e *leaderelection.RaceEntry, after uint64, now time.Time) *assignment {
	next := a.clone()
	// More than any group has counted, so that members that know an older assignment take this
	// one for newer.
	born := uint64(max(now.Unix(), 1))
	next.version, next.id = max(e.ElectionNumber, leaderelection.ElectionNumber(born))+1, rand.Text()
	next.token, next.sessions, next.failures, next.retired = e.Token, nil, nil, max(a.retired, after, born)
	for i, p := range next.places {
		next.places[i] = placed{session: none, token: max(p.token, after, born)}
	}
	return next
}

// readDamaged returns the stored record and, if it is damaged, why it cannot be understood.
func readDamaged(ctx context.Context, d leaderelection.RaceDecider) (e *leaderelection.RaceEntry, damaged, err error) {
	e, err = current(d)(ctx)
	var damage *leaderelection.DamagedRecordError
	if errors.As(err, &damage) {
		return &leaderelection.RaceEntry{Token: damage.Token}, damage, nil
	}
	return e, nil, err
}

// seatsAreFree returns why some member may own shards, or nil. An assignment names so many seats.
func (s *stores) seatsAreFree(ctx context.Context, named int) error {
	// The coordinator first: a group that lives has one, even if its seats were deleted.
	if _, err := s.isFree(ctx, coordinatorName); err != nil {
		return err
	}
	for k := range MaxShards {
		if used, err := s.isFree(ctx, seatName(k)); err != nil || !used && k >= named {
			return err // nil: nobody ever had this seat or a later one
		}
	}
	return nil
}

// isFree returns why somebody may hold a record, or nil. It also reports whether anybody ever did.
func (s *stores) isFree(ctx context.Context, name string) (used bool, err error) {
	d, err := s.get(ctx, math.MaxInt64, name)
	if err != nil {
		return false, err
	}
	e, damage, err := readDamaged(ctx, d)
	switch {
	case err != nil:
		return false, fmt.Errorf("reading %s: %w", name, err)
	case damage != nil:
		// Not wrapped: it is not the assignment that is damaged.
		return true, fmt.Errorf("whether %s is held cannot be told: stop all members, wait for a term, and force it: %v", name, damage)
	}
	if until := e.TermExpiry.Add(min(e.TermLength, leaderelection.MaxTermLength)); !e.Vacant() && (e.Unsynchronized || time.Now().Before(until)) {
		return true, fmt.Errorf("%s is held by %q until %v: stop all members, and wait until then; or for a term, and force it",
			name, memberOf(e.LeaderID), until.Format(time.RFC3339))
	}
	return e.ElectionNumber != leaderelection.NoElections, nil
}
