package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/c8e606e4/leaderelection"
)

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
	r := resetting{stores: newStores(o.Store), after: uint64(after), force: force}
	return r.stores.change(ctx, what, r.once)
}

// resetting is one Reset.
type resetting struct {
	stores *stores
	after  uint64
	force  bool
}

func (r *resetting) once(ctx context.Context, d leaderelection.RaceDecider) error {
	e, unclear, err := r.read(ctx, d)
	if err != nil {
		return err
	}
	a := &assignment{}
	if unclear == nil {
		known, err := readAssignment(e)
		if known != nil {
			a = known
		}
		unclear = err
	}
	switch err := r.seatsAreFree(ctx, a); {
	case err != nil:
		return err
	case !e.Vacant():
		return unclear // an election's
	case unclear != nil && !r.force:
		return fmt.Errorf("it cannot be told what is there: make sure that it is this group's, stop all members, wait for a term, and force it: %w", unclear)
	}
	next := a.clone()
	// More than any group has counted, so that members that know an older assignment take this
	// one for newer.
	born := uint64(max(time.Now().Unix(), 1))
	next.version, next.id = max(e.ElectionNumber, leaderelection.ElectionNumber(born))+1, rand.Text()
	next.token, next.sessions, next.failures, next.retired = e.Token, nil, nil, max(a.retired, r.after, born)
	for i, p := range next.places {
		next.places[i] = placed{session: none, token: max(p.token, r.after, born)}
	}
	return writeNext(ctx, d, next)
}

// read returns the stored record and, if it is damaged, why it cannot be understood.
func (r *resetting) read(ctx context.Context, d leaderelection.RaceDecider) (e *leaderelection.RaceEntry, damaged, err error) {
	e, err = current(d)(ctx)
	var damage *leaderelection.DamagedRecordError
	if errors.As(err, &damage) {
		return &leaderelection.RaceEntry{Token: damage.Token}, damage, nil
	}
	return e, nil, err
}

// seatsAreFree returns why some member may own shards, or nil. With force it returns nil.
func (r *resetting) seatsAreFree(ctx context.Context, a *assignment) error {
	if r.force {
		return nil
	}
	least := 0
	for _, s := range a.sessions {
		least = max(least, s.Seat+1)
	}
	// The coordinator first: a group that lives has one, even if its seats were deleted.
	if _, err := r.isFree(ctx, coordinatorName); err != nil {
		return err
	}
	for k := range MaxShards {
		if used, err := r.isFree(ctx, seatName(k)); err != nil || !used && k >= least {
			return err // nil: nobody ever had this seat or a later one
		}
	}
	return nil
}

// isFree returns why somebody may hold a record, or nil. It also reports whether anybody ever did.
func (r *resetting) isFree(ctx context.Context, name string) (used bool, err error) {
	d, err := r.stores.get(ctx, math.MaxInt64, name)
	if err != nil {
		return false, err
	}
	e, damage, err := r.read(ctx, d)
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
