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

// Reset puts an assignment that gives nobody anything in the place of one that the group
// cannot go on from: a damaged one, or one that was deleted, or restored from a backup. It
// keeps the count of the tokens: each shard's next is greater than after, and than what the
// record has of it. So after must be the greatest token that any fence, log or backup has
// seen. Pins, cordons and shards stay, if the record can be read.
//
// Stop all members before, and wait for a term. Unless it is forced, Reset refuses while the
// coordinator's term or a seat's runs, or if that cannot be told. It also refuses a record that is no
// assignment that this version understands; forced, it replaces that, too, but never an
// election's that somebody leads.
//
// It writes on the condition that the record is what was judged, and returns nil when it is
// written.
func (o Operator) Reset(ctx context.Context, after uint64, force bool) error {
	const what = "resetting the assignment"
	if o.Store == nil {
		return errors.New("shard: the Operator's Store is nil")
	}
	if after == 0 || after >= uint64(leaderelection.MaxElectionNumber) {
		return fmt.Errorf("shard: %s: after is %d: it must be the greatest token that any fence has seen, from 1 to %d", what, after, leaderelection.MaxElectionNumber-1)
	}
	r := resetting{stores: newStores(o.Store), after: after, force: force}
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
	// More than any group has counted: whoever knows an older assignment takes it for newer.
	next.version, next.id = max(e.ElectionNumber, leaderelection.ElectionNumber(time.Now().Unix()))+1, rand.Text()
	next.token, next.sessions, next.retired = e.Token, nil, max(a.retired, r.after)
	for i, p := range next.places {
		next.places[i] = placed{session: none, token: max(p.token, r.after)}
	}
	return writeNext(ctx, d, next)
}

// read returns what is stored, and why it cannot be understood, if it is damaged.
func (r *resetting) read(ctx context.Context, d leaderelection.RaceDecider) (e *leaderelection.RaceEntry, damaged, err error) {
	e, err = current(d)(ctx)
	var damage *leaderelection.DamagedRecordError
	if errors.As(err, &damage) {
		return &leaderelection.RaceEntry{Token: damage.Token}, damage, nil
	}
	return e, nil, err
}

// seatsAreFree returns why some member may own shards, unless that does not matter.
func (r *resetting) seatsAreFree(ctx context.Context, a *assignment) error {
	if r.force {
		return nil
	}
	least := 0
	for _, s := range a.sessions {
		least = max(least, s.Seat+1)
	}
	// The coordinator first: seats may have been deleted, too, and a group that lives has one.
	if _, err := r.isFree(ctx, coordinatorName); err != nil {
		return err
	}
	for k := range MaxShards {
		if used, err := r.isFree(ctx, seatName(k)); err != nil || !used && k >= least {
			return err // or nobody ever had that one, or a later one
		}
	}
	return nil
}

// isFree returns why somebody may hold a record, or nil; and whether anybody ever did.
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
