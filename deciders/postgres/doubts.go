package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/c8e606e4/leaderelection"
)

// inDoubt reports whether a record that was read may be on this server alone. A session
// that commits is seen by others when its standbys have the write, or when its wait for
// them ends early: by a cancellation (pgx sends one when a ctx ends), by a termination,
// by a crash.
func (b *backend) inDoubt(e *leaderelection.RaceEntry) bool {
	t, _ := e.Token.(token)
	return b.doubts.About(e.Incarnation, t.version)
}

// current reads the row. One in doubt it touches, which waits for the row's lock, and
// then for all that was written before to be safe.
func (d *Decider) current(ctx context.Context) (*leaderelection.RaceEntry, error) {
	for {
		e, err := d.election.Current(ctx)
		if err != nil || !d.b.inDoubt(e) {
			return e, err
		}
		version := e.Token.(token).version
		err = d.b.commit(ctx, d.b.touchSQL, []any{d.b.mode, d.b.election, version}, nil)
		switch {
		case err == nil:
			d.b.doubts.Settle(version)
			return e, nil
		case !errors.Is(err, pgx.ErrNoRows) && code(err) != serializationFailure: // else replaced meanwhile
			return nil, fmt.Errorf("making sure that a write of one's own, which was not answered, is safe and on the standbys: %w", err)
		}
	}
}
