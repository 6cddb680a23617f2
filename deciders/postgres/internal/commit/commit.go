// Package commit runs statements that count only when the standbys have the write.
package commit

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Proof is what a statement of Run returns last. It raises synchronous_commit to on for the
// statement's transaction, and lowers client_min_messages to notice, since a role may have other
// values. Then it makes the server send a harmless notice (that a text-search query is empty, which
// no permission can forbid and no default logs). The server reports a canceled wait for a standby
// only by a warning, on the same way: a client that hears the notice would have heard the warning.
// The last column says whether commits wait for standbys.
const Proof = `CASE WHEN pg_catalog.current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN pg_catalog.set_config('synchronous_commit', 'on', true) END,
pg_catalog.left(pg_catalog.set_config('client_min_messages', 'notice', true), 0)::pg_catalog.tsquery IS NULL,
pg_catalog.current_setting('synchronous_standby_names') <> ''`

// Check is a statement for Run that writes nothing, and shows whether Run could prove a write.
const Check = "SELECT " + Proof

// DB is what runs a statement; of a *pgxpool.Pool one connection is used.
type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Run runs a statement that writes and returns a row that ends with Proof. Dest is for the columns
// before. It returns nil only if the response proves that nobody has cut short the wait for the
// standbys: a server that cancels answers as if all were well, except for a warning. If commits
// wait for standbys, and this connection does not hear the server's notices, nothing is proved.
func Run(ctx context.Context, db DB, sql string, args []any, dest ...any) (err error) {
	var heard map[string]any
	if p, ok := db.(interface {
		Acquire(context.Context) (*pgxpool.Conn, error)
	}); ok {
		c, none := p.Acquire(ctx)
		if none != nil {
			return none
		}
		defer func() { Release(c, err) }()
		db, heard = c, c.Conn().PgConn().CustomData()
		delete(heard, cutShort)
		delete(heard, hears)
	}
	var waits bool
	if err := db.QueryRow(ctx, sql, args...).Scan(slices.Concat(dest, []any{nil, nil, &waits})...); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("answered too late: %w", ctx.Err()) // it may be the answer to a cancellation
	case heard[cutShort] != nil:
		return errors.New("somebody has cancelled the wait for the standbys, so it does not count yet")
	case waits && heard[hears] == nil:
		return store.Wrong("synchronous_standby_names is set, and this pool does not hear the server's notices, which alone report a cancelled wait for a standby: " +
			"give the pool's configuration to postgres.Prepare before pgxpool.NewWithConfig, and let no proxy in between drop notices")
	}
	return nil
}

// Release gives a connection back after err. If the connection takes no writes, it is closed: after
// a fail-over behind the same address, only a new connection leads to the new primary.
func Release(c *pgxpool.Conn, err error) {
	var server *pgconn.PgError
	if errors.As(err, &server) && server.Code == readOnly {
		ctx, cancel := context.WithTimeout(context.Background(), goodbye)
		defer cancel()
		_ = c.Conn().Close(ctx)
	}
	c.Release()
}

const (
	readOnly = "25006" // read_only_sql_transaction, which a hot standby says as well
	goodbye  = 100 * time.Millisecond
)

// The keys under which a session has noted that it hears the server, and that the server
// gave up the wait for its standbys.
const (
	hears    = "leaderelection: hears notices"
	cutShort = "leaderelection: wait for standbys cut short"
)

// Notice makes config's connections hear the notice of a Proof, and of a canceled wait for a
// standby. It passes other notices on to the earlier handler.
func Notice(config *pgxpool.Config) {
	next := config.ConnConfig.OnNotice
	config.ConnConfig.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		// Known by the server's source file: the words are in the server's language,
		// and the code is that of any notice.
		switch {
		case n.File == "tsquery.c" && n.SeverityUnlocalized == "NOTICE":
			c.CustomData()[hears] = true
			return
		case n.File == "syncrep.c" && n.SeverityUnlocalized == "WARNING":
			c.CustomData()[cutShort] = true
		}
		if next != nil {
			next(c, n)
		}
	}
}

// synchronous is the form of synchronous_standby_names that counts. Only an examination needs it, so
// it is not compiled when a program starts.
var synchronous = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?is)^\s*(?:(?:ANY|FIRST)\s+)?(\d+)\s*\((.*)\)\s*$`) })

// Quorum reads synchronous_standby_names: how many standbys must have a write, and out of how
// many. A star is for all that there are.
func Quorum(names string, receivers int) (must, of int) {
	must = 1
	if m := synchronous().FindStringSubmatch(names); m != nil {
		must, _ = strconv.Atoi(m[1])
		names = m[2]
	}
	quotes := 0
	of = 1
	for _, c := range names {
		switch {
		case c == '"':
			quotes++
		case quotes%2 == 1:
		case c == '*':
			return must, max(receivers, must)
		case c == ',':
			of++
		}
	}
	return must, of
}
