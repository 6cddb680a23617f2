package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/postgres/internal/commit"
	"github.com/c8e606e4/leaderelection/deciders/postgres/internal/table"
)

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, was token, data []byte, e *leaderelection.RaceEntry) (none token, err error) {
	at, err := b.table.Find(ctx)
	if err != nil {
		return none, err
	}
	// One who could not prove that it was elected does not keep others out for a term.
	if !b.proves.Load() {
		if err := commit.Run(ctx, b.db, commit.Check, []any{b.table.Mode}); err != nil {
			return none, err
		}
		b.proves.Store(true)
	}
	for tries := 0; ; tries++ {
		// Never the same twice, even when the row was deleted and made again.
		now := token{version: rand.Text()}
		sql, more := at.Update, [2]string{was.version, table.Payload(now.version, data)}
		if was.version == "" {
			sql, more = at.Insert, [2]string{table.NewChannel(), at.Hello(b.election)}
		}
		number, lost := b.doubts.Begin(e.Incarnation)
		err = commit.Run(ctx, b.db, sql, []any{b.table.Mode, b.election, now.version, string(data), more[0], more[1]}, &now.micros, nil)
		switch {
		case err == nil:
			b.doubts.Landed(number, now.version)
			return now, nil
		case errors.Is(err, pgx.ErrNoRows):
			lost()
			return none, &leaderelection.LostRaceError{}
		case table.Code(err) != table.SerializationFailure:
			return none, err
		}
		lost()
		s, _, unread := b.read(ctx)
		switch {
		case unread != nil:
			return none, err
		case s.At != was:
			return none, &store.Refusal[token]{Current: s, Err: err}
		case tries == maxSuspicions:
			return none, err
		}
	}
}

// maxSuspicions is how often a write is tried again that PostgreSQL refused for the
// sake of an isolation level above READ COMMITTED though nobody else has written: it
// suspected a conflict that was none, or a read that waited for the standbys was in
// between (see current).
const maxSuspicions = 3

// current reads the row. One in doubt it touches, which waits for the row's lock, and
// then for all that was written before to be safe.
func (d *Decider) current(ctx context.Context) (*leaderelection.RaceEntry, error) {
	replaced := map[string]bool{}
	for {
		e, err := d.election.Current(ctx)
		if err != nil || !d.b.inDoubt(e) {
			return e, err
		}
		version := e.Token.(token).version
		if replaced[version] {
			return nil, store.ErrLags
		}
		var at *table.Place
		if at, err = d.b.table.Find(ctx); err != nil {
			return nil, err
		}
		err = d.b.touch(ctx, at.Touch, []any{d.b.table.Mode, d.b.election, version})
		switch {
		case err == nil:
			d.b.doubts.Settle(version)
			return e, nil
		case errors.Is(err, pgx.ErrNoRows):
			replaced[version] = true
		case table.Code(err) != table.SerializationFailure:
			return nil, fmt.Errorf("making sure that an earlier write, which had no response, is safe and on the standbys: %w", err)
		}
	}
}

// touch makes sure of a record that is in doubt. It may be given up early without harm, since
// it changes nothing, and then says what the server waits for.
func (b *backend) touch(ctx context.Context, sql string, args []any) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := commit.Run(within, b.db, sql, args)
	if err == nil || within.Err() == nil || ctx.Err() != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, patience/6)
	defer cancel()
	var names string
	var streaming int
	switch asked := b.db.QueryRow(asking, waitsFor, b.table.Mode).Scan(&names, &streaming); {
	case asked != nil:
		return fmt.Errorf("no answer within %v: %w", patience, err)
	case names != "":
		return fmt.Errorf("the server waits for a synchronous standby (synchronous_standby_names is %q, and replication has %d receivers): bring the standby back: %w", names, streaming, err)
	}
	return fmt.Errorf("no answer within %v: see who has a transaction open on the table (pg_stat_activity, pg_locks): %w", patience, err)
}

const waitsFor = `SELECT current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_catalog.pg_stat_replication)`

// inDoubt reports whether a record that was read may be on this server alone. A session
// that commits is seen by others when its standbys have the write, or when its wait for
// them ends early: by a cancellation (pgx sends one when a ctx ends), by a termination,
// by a crash.
func (b *backend) inDoubt(e *leaderelection.RaceEntry) bool {
	t, _ := e.Token.(token)
	return b.doubts.About(e.Incarnation, t.version)
}
