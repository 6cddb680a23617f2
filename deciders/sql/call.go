package sql

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
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

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, was token, data []byte, e *leaderelection.RaceEntry) (none token, err error) {
	if err := b.look(ctx); err != nil {
		return none, err
	}
	// Never the same twice, even when the row was deleted and made again.
	next := token{version: rand.Text()}
	query, args := b.sql.update, []any{next.version, string(data), b.election, was.version}
	if was.version == "" {
		query, args = b.sql.insert, []any{b.election, next.version, string(data)}
	}
	number, _ := b.doubts.Begin(e.Incarnation)
	micros, changed, err := b.exec(ctx, query, args...)
	switch {
	case err != nil && was.version == "" && b.dialect.Judge(err).Kind == Duplicate:
		return none, &leaderelection.LostRaceError{Err: err}
	case err != nil:
		return none, err
	case !changed:
		// The doubt stays: a proxy may have sent again what had been done before.
		if err := b.alone(ctx); err != nil {
			return none, err
		}
		return none, &leaderelection.LostRaceError{}
	}
	b.doubts.Landed(number, next.version)
	next.micros = micros
	return next, nil
}

// exec runs a statement that writes one row or none. It returns without an error only if
// the answer is one that the statement can have.
func (b *backend) exec(ctx context.Context, query string, args ...any) (micros int64, changed bool, err error) {
	type answer struct{ rows, id int64 }
	a, err := do(ctx, b, func() (a answer, err error) {
		r, err := b.write(ctx, query, args)
		if err != nil {
			return a, err
		}
		if a.rows, err = r.RowsAffected(); err == nil && b.stamped(query) {
			a.id, err = r.LastInsertId()
		}
		return a, err
	})
	switch {
	case err != nil:
		return 0, false, err
	case a.rows == 0:
		return 0, false, nil
	case a.rows != 1:
		return 0, false, fmt.Errorf("the driver says that %d rows were written, but only one or none can be", a.rows)
	case b.stamped(query) && a.id <= 0:
		return 0, false, errors.New("the response to a write has no time, so it is not the server's")
	}
	return a.id, true, nil
}

// stamped reports whether the answer to a statement has its time.
func (b *backend) stamped(query string) bool { return b.dialect.NowIsInsertID && query != b.sql.touch }

// alone returns why a session may not write, if that is known.
func (b *backend) alone(ctx context.Context) error {
	if b.sql.alone == "" {
		return nil
	}
	yes, err := do(ctx, b, func() (yes bool, err error) {
		err = b.QueryRowContext(ctx, b.sql.alone).Scan(&yes)
		return yes, err
	})
	if err == nil && !yes {
		return store.Wrong("a write by this session would be confirmed before it is committed, or be decided differently on a replica: "+
			"set up the pool, the account and the server so that this holds in each session: %s", b.dialect.Alone)
	}
	return nil // what else is wrong the next call meets
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	f := b.dialect.Judge(err)
	switch {
	case f.Kind == NoTable && b.opts.CreateTable:
		b.found.Store(false) // it was there
		return store.Passing("it will be made again")
	case f.Kind == NoTable:
		b.found.Store(false)
		return store.Permanent("make the table, or set Options.CreateTable (create=true in an address):\n" + b.dialect.Schema(b.table))
	case f.Kind == NotAsDocumented:
		return store.Permanent("the table must be as in\n" + b.dialect.Schema(b.table))
	case f.Kind == Permanent:
		return store.Permanent(f.Advice)
	case f.Kind == Denied:
		return store.Denied(f.Advice)
	case f.Advice != "":
		return store.Passing(f.Advice)
	case strings.Contains(err.Error(), "sql: database is closed"):
		return store.Permanent("keep the pool open while the election goes on")
	case store.BadCertificate(err):
		return store.Permanent("check the server's certificate and the authorities that it is checked by")
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, io.ErrUnexpectedEOF):
		return store.Passing("the connection is gone, or the server takes no writes")
	}
	return store.Verdict{}
}

// WhyLate is said of a call whose ctx has ended.
func (b *backend) WhyLate() string { return cmp.Or(b.dialect.Late, "the server has not answered") }
