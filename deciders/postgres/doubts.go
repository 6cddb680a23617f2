package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/c8e606e4/leaderelection"
)

// doubts knows which records may be on this server alone. A session that commits is
// seen by others when its standbys have the write, or when its wait for them ends
// early: by a cancellation (pgx sends one when a ctx ends), by a termination, by a
// crash. A campaign takes a record of its own that it reads for a write that worked. So
// each record of an Incarnation with a write that was not answered is in doubt, whoever
// has written it: an operator's request carries on what it was written on.
type doubts struct {
	mu      sync.Mutex
	writes  uint64            // begun so far
	open    map[string]uint64 // by Incarnation, its latest write that was not answered
	settled string            // the last version that is known to be safe
}

// begin notes a write of an Incarnation. Lost takes the note back, of a write that is
// known not to have happened.
func (d *doubts) begin(incarnation string) (number uint64, lost func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[string]uint64{}
	}
	before := d.open[incarnation]
	d.writes++
	number = d.writes
	d.open[incarnation] = number
	return number, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.open[incarnation] != number {
			return
		}
		if d.open[incarnation] = before; before == 0 {
			delete(d.open, incarnation)
		}
	}
}

// landed notes that a write was answered. What was begun before it is on versions that
// are gone: it has happened, and is as safe as this one, or never will.
func (d *doubts) landed(number uint64, version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = version
	maps.DeleteFunc(d.open, func(_ string, latest uint64) bool { return latest <= number })
}

// settle notes a version that is safe.
func (d *doubts) settle(version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = version
}

// about reports whether a record that was read is in doubt.
func (d *doubts) about(e *leaderelection.RaceEntry) bool {
	t, _ := e.Token.(token)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[e.Incarnation] > 0 && t.version != "" && t.version != d.settled
}

// current reads the row. One in doubt it touches, which waits for the row's lock, and
// then for all that was written before to be safe.
func (d *Decider) current(ctx context.Context) (*leaderelection.RaceEntry, error) {
	for {
		e, err := d.election.Current(ctx)
		if err != nil || !d.b.doubts.about(e) {
			return e, err
		}
		version := e.Token.(token).version
		err = d.b.commit(ctx, d.b.touchSQL, []any{d.b.mode, d.b.election, version}, nil)
		switch {
		case err == nil:
			d.b.doubts.settle(version)
			return e, nil
		case !errors.Is(err, pgx.ErrNoRows) && code(err) != serializationFailure: // else replaced meanwhile
			return nil, fmt.Errorf("making sure that a write of one's own, which was not answered, is safe and on the standbys: %w", err)
		}
	}
}
