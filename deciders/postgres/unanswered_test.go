package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// hanging is a pool to which the server does not answer from some time on.
type hanging struct {
	*pgxpool.Pool
	reads, notes atomic.Bool
}

func (h *hanging) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if h.reads.Load() {
		<-ctx.Done()
	}
	return h.Pool.QueryRow(ctx, sql, args...)
}

func (h *hanging) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if h.notes.Load() && strings.Contains(sql, "pg_notify") {
		<-ctx.Done()
	}
	return h.Pool.Exec(ctx, sql, args...)
}

// A server that falls silent just when the feed asks it something ends the feed, too,
// not only one that falls silent in between.
func TestServerHangsWhileItIsAsked(t *testing.T) {
	stores.Nightly(t, "it waits for the server or the client to give up")
	t.Parallel()
	p := pool(t, stores.Postgres(t).Addr)
	writer := postgres.NewDecider(p, "leaderelection", "e", create)
	token := feedtest.Write(t, writer, 1, nil)
	for name, c := range map[string]struct {
		hang func(*hanging)
		late bool // after the feed has begun
	}{
		"at its first read":    {hang: func(h *hanging) { h.reads.Store(true) }},
		"at its own word":      {hang: func(h *hanging) { h.notes.Store(true) }},
		"at what it must read": {hang: func(h *hanging) { h.reads.Store(true) }, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hanging{Pool: p}
			d := postgres.NewDecider(h, "leaderelection", "e", nil)
			feedtest.Read(t, d) // the table has been looked at
			if !c.late {
				c.hang(h)
			}
			feed := feedtest.Follow(t, d)
			if c.late {
				feedtest.Next(t, feed)
				c.hang(h)
				e := feedtest.State(2, token)
				e.ConnectionParams = make([]byte, 100_000) // too long for a notification
				if _, err := writer.WriteEntry(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			begun := time.Now()
			feedtest.Passing(t, feedtest.Next(t, feed).Err, `"e"`, "the server does not answer")
			if took := time.Since(begun); took > 15*time.Second {
				t.Errorf("noticed after %v", took)
			}
		})
	}
}

// split is a pool behind what sends reads to a replica that lags, and loses some writes.
type split struct {
	*pgxpool.Pool
	lags, loses atomic.Bool
	reads       atomic.Int64
}

func (s *split) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if s.lags.Load() {
		s.reads.Add(1)
		sql = strings.Replace(sql, `"leaderelection"`, "replica", 1)
	}
	return s.Pool.QueryRow(ctx, sql, args...)
}

func (s *split) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	if s.loses.Load() {
		return nil, errors.New("the connection broke")
	}
	return s.Pool.Acquire(ctx)
}

// A record of one's own that is in doubt, and that only a replica still has, is not made
// sure of again and again.
func TestDoubtAndLaggingReads(t *testing.T) {
	t.Parallel()
	p := pool(t, stores.Postgres(t).Addr)
	s := &split{Pool: p}
	d, writer := postgres.NewDecider(s, "leaderelection", "e", create), postgres.NewDecider(p, "leaderelection", "e", nil)
	token := feedtest.Write(t, writer, 2, feedtest.Write(t, d, 1, nil))
	if _, err := p.Exec(t.Context(), "CREATE TABLE replica AS SELECT * FROM leaderelection"); err != nil {
		t.Fatal(err)
	}
	token = feedtest.Write(t, writer, 3, token)
	s.loses.Store(true)
	feedtest.Passing(t, feedtest.WriteError(t, d, 4, token), "the connection broke")
	s.loses.Store(false)
	s.lags.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := d.ReadCurrent(ctx)
	feedtest.Passing(t, err, "replica", "primary")
	if n := s.reads.Load(); n > 4 {
		t.Errorf("it was read %d times", n)
	}
	s.lags.Store(false)
	feedtest.Reads(t, d, 3)
}
