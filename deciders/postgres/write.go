package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/record"
)

// WriteEntry implements leaderelection.RaceDecider, in one statement.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	t, err := d.write(ctx, entry)
	if err != nil {
		return nil, d.failed(ctx, "writing", err)
	}
	return t, nil
}

func (d *Decider) write(ctx context.Context, entry *leaderelection.RaceEntry) (token, error) {
	if err := d.ready(ctx); err != nil {
		return token{}, err
	}
	data, err := record.Marshal(entry)
	if err != nil {
		return token{}, err
	}
	var was token
	if entry.Token != nil {
		t, ours := entry.Token.(token)
		if !ours {
			return token{}, permanent("the Token is a %T, of another kind of store", entry.Token)
		}
		was = t
	}
	// Never the same twice, also when the row was deleted and made again.
	now := token{version: rand.Text()}
	sql, more := d.updateSQL, [2]string{was.version, payload(now.version, data)}
	if was.version == "" {
		sql, more = d.insertSQL, [2]string{newChannel(), d.found.Load().hello(d.election)}
	}
	number, lost := d.doubts.begin(entry.Incarnation)
	err = d.commit(ctx, sql, []any{d.mode, d.election, now.version, string(data), more[0], more[1]}, &now.micros, nil, nil)
	switch {
	case err == nil:
		d.doubts.landed(number, now.version)
		return now, nil
	case errors.Is(err, pgx.ErrNoRows):
		lost()
		return token{}, &leaderelection.LostRaceError{Place: d.place}
	case code(err) == serializationFailure:
		lost()
		return token{}, d.serialized(ctx, was, err)
	}
	return token{}, err
}

// serialized explains a write that PostgreSQL refused for the sake of an isolation
// level above READ COMMITTED: as a rule it has lost the race, and otherwise, where
// PostgreSQL suspected a conflict that was none, it can be tried again.
func (d *Decider) serialized(ctx context.Context, was token, refusal error) error {
	e, err := d.current(ctx)
	if err != nil || e.Token == was {
		return refusal
	}
	return &leaderelection.LostRaceError{Place: d.place, Current: e, Err: refusal}
}

// commit runs a statement that writes and answers with a row. It returns nil only where
// the answer proves that nobody has cut short the wait for the standbys: a server that
// is asked to cancel then answers as if all were well.
func (d *Decider) commit(ctx context.Context, sql string, args []any, dest ...any) error {
	db, session := d.db, (*pgconn.PgConn)(nil)
	if p, ok := db.(interface {
		Acquire(context.Context) (*pgxpool.Conn, error)
	}); ok {
		c, err := p.Acquire(ctx)
		if err != nil {
			return err
		}
		defer c.Release()
		db, session = c, c.Conn().PgConn()
		delete(session.CustomData(), cutShort)
	}
	if err := db.QueryRow(ctx, sql, args...).Scan(dest...); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("answered too late: %w", err) // it may be the answer to a cancellation
	}
	if session != nil && session.CustomData()[cutShort] != nil {
		return errors.New("somebody has cancelled the wait for the standbys, so it does not count yet")
	}
	return nil
}

// cutShort is the key under which a session has noted that the server gave up the wait
// for its standbys.
const cutShort = "leaderelection: wait for standbys cut short"

// Prepare sets in a pool's configuration what Open sets in its own: ShouldPing, a
// bound for the time that a connection may take to be made, where there is none, and
// an OnNotice that hears of a cancelled wait for a standby (see the package comment),
// and hands on to the one that was there.
func Prepare(config *pgxpool.Config) {
	patient(config.ConnConfig)
	if config.PingTimeout == 0 {
		config.PingTimeout = pingTimeout
	}
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
	next := config.ConnConfig.OnNotice
	config.ConnConfig.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		// Known by the server's source file: the words are in the server's language,
		// and the code is that of any warning.
		if n.File == "syncrep.c" && n.SeverityUnlocalized == "WARNING" {
			c.CustomData()[cutShort] = true
		}
		if next != nil {
			next(c, n)
		}
	}
}
