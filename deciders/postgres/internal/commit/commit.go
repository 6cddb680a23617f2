// Package commit runs statements whose answer counts only when the standbys have the
// write.
package commit

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is what runs a statement; of a *pgxpool.Pool one connection is used.
type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Run runs a statement that writes and answers with a row. It returns nil only if
// the answer proves that nobody has cut short the wait for the standbys: a server that
// is asked to cancel then answers as if all were well. A pool that Notice has not prepared
// shows that by the time of the answer alone.
func Run(ctx context.Context, db DB, sql string, args []any, dest ...any) error {
	var session *pgconn.PgConn
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

// Notice has the connections made by config hear of a cancelled wait for a standby. It
// hands on each notice to whoever heard it before.
func Notice(config *pgxpool.Config) {
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
