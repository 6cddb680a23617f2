package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection/deciders/postgres/internal/commit"
)

// patience is how long a connection of the pool, and a standby's confirmation of what is
// there already, is waited for: less than a quarter of the usual term, after which the
// campaign gives the call up, and would not hear why.
const patience = 3 * time.Second

// lender is a pool that says so if it has no connection to lend. The server is not to blame
// for that.
type lender struct{ *pgxpool.Pool }

// Acquire lends a connection, to be released.
func (l lender) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	c, err := l.Pool.Acquire(within)
	if s := l.Stat(); err != nil && within.Err() != nil && s.AcquiredConns() >= s.MaxConns() {
		return nil, fmt.Errorf("waited for a connection of the pool for %v: all %d are in use. Give the election a pool of its own, or this one more connections (pool_max_conns): %w",
			time.Since(begun).Round(time.Millisecond), s.MaxConns(), err)
	}
	return c, err
}

// QueryRow is that of the pool.
func (l lender) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c, err := l.Acquire(ctx)
	if err != nil {
		return lent{err: err}
	}
	return lent{c, c.QueryRow(ctx, sql, args...), nil}
}

// Exec is that of the pool.
func (l lender) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c, err := l.Acquire(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := c.Exec(ctx, sql, args...)
	commit.Release(c, err)
	return tag, err
}

// unheard closes the idle connections of a pool of Open's if err is that the server was not heard in
// time: in a feed, or in a part of a call. Those in use are closed when they are given back.
func (b *backend) unheard(ctx context.Context, err error) {
	if b.own != nil && err != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
		b.own.Reset()
	}
}

// lent is a row, and the connection to give back after it.
type lent struct {
	c   *pgxpool.Conn
	row pgx.Row
	err error
}

// Scan implements pgx.Row.
func (r lent) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	err := r.row.Scan(dest...)
	commit.Release(r.c, err)
	return err
}
