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
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, was token, data []byte, e *leaderelection.RaceEntry) (none token, err error) {
	at, err := b.find(ctx)
	if err != nil {
		return none, err
	}
	for tries := 0; ; tries++ {
		// Never the same twice, also when the row was deleted and made again.
		now := token{version: rand.Text()}
		sql, more := b.updateSQL, [2]string{was.version, payload(now.version, data)}
		if was.version == "" {
			sql, more = b.insertSQL, [2]string{newChannel(), at.hello(b.election)}
		}
		number, lost := b.doubts.Begin(e.Incarnation)
		err = b.commit(ctx, sql, []any{b.mode, b.election, now.version, string(data), more[0], more[1]}, &now.micros, nil, nil)
		switch {
		case err == nil:
			b.doubts.Landed(number, now.version)
			return now, nil
		case errors.Is(err, pgx.ErrNoRows):
			lost()
			return none, &leaderelection.LostRaceError{}
		case code(err) != serializationFailure:
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

// commit runs a statement that writes and answers with a row. It returns nil only where
// the answer proves that nobody has cut short the wait for the standbys: a server that
// is asked to cancel then answers as if all were well.
func (b *backend) commit(ctx context.Context, sql string, args []any, dest ...any) error {
	db, session := b.db, (*pgconn.PgConn)(nil)
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
