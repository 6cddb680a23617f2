package sql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// patience is how long a connection of the pool is waited for: less than a quarter of the
// usual term, after which the campaign gives the call up, and would not hear why.
const patience = 3 * time.Second

// maxStray is how many statements that were given up may be running at the server when
// another one begins. One that waits for a lock or for a replica keeps its session until
// then, even when its connection is gone.
const maxStray = 2

// do makes a call, unless too many that were given up are still running at the server.
func do[T any](ctx context.Context, b *backend, call func() (T, error)) (T, error) {
	t, err := within.Do(ctx, b.calls, func() (none T, err error) {
		if err := b.room(ctx); err != nil {
			return none, err
		}
		return call()
	})
	if ctx.Err() != nil {
		b.strayed.Store(true)
	}
	return t, err
}

// room returns why no call may be made now.
func (b *backend) room(ctx context.Context) error {
	if b.dialect.Running == nil || !b.strayed.Load() {
		return nil
	}
	states, err := b.dialect.Running(ctx, b.db, b.mark)
	switch {
	case err != nil:
		return fmt.Errorf("asking the server which of the statements that were given up still run: %w", err)
	case len(states) >= maxStray:
		return fmt.Errorf("%d statements that were given up still run at the server (%s), and another one would wait as well", len(states), strings.Join(states, "; "))
	case len(states) == 0:
		b.strayed.Store(false)
	}
	return nil
}

// marked is a statement with the mark in it.
func (b *backend) marked(query string) string {
	if b.mark == "" {
		return query
	}
	return strings.TrimSpace(query) + " /* " + b.mark + " */"
}

// conn lends a connection of the pool, and says so if there is none: the server is not to
// blame for that.
func (b *backend) conn(ctx context.Context) (*sql.Conn, error) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	c, err := b.db.Conn(within)
	if err == nil || within.Err() == nil {
		return c, err
	}
	took := time.Since(begun).Round(time.Millisecond)
	if s := b.db.Stats(); s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		return nil, fmt.Errorf("waited for a connection of the pool for %v: all %d are in use. Give the election a pool of its own, or this one more connections (SetMaxOpenConns): %w",
			took, s.MaxOpenConnections, err)
	}
	return nil, fmt.Errorf("no connection was made within %v: %w", took, err)
}

// QueryContext implements Asker.
func (b *backend) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return b.db.QueryContext(ctx, b.marked(query), args...)
}

// QueryRowContext implements Asker.
func (b *backend) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return b.db.QueryRowContext(ctx, b.marked(query), args...)
}

// write runs a statement that writes, under the dialect's lock.
func (b *backend) write(ctx context.Context, query string, args []any) (sql.Result, error) {
	c, err := b.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if at := b.at.Load(); b.dialect.Lock != nil && at != nil {
		held, err := b.dialect.Lock(ctx, *at)
		if err != nil {
			return nil, err
		}
		defer held.Close()
	}
	r, err := c.ExecContext(ctx, b.marked(query), args...)
	if err != nil && b.dialect.Judge(err).Kind == ReadOnly {
		_ = c.Raw(func(any) error { return driver.ErrBadConn })
	}
	return r, err
}
