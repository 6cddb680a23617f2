package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/record"
)

// DB is what a Decider needs of pgx: a *pgxpool.Pool has it. A single *pgx.Conn has
// it, too, and will not do, since it serves one goroutine at a time.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Options adjusts a Decider. The zero value is right for a table that is there and a
// pool of direct connections to the primary.
type Options struct {
	// CreateTable makes the table, as Schema prints it, where it is missing.
	CreateTable bool
	// Listen opens the connection that the feed listens on, and which the feed
	// closes. It must lead to the primary, and not through a transaction pooler.
	// Nil: one is opened as the pool's configuration says, beside the pool.
	Listen func(ctx context.Context) (*pgx.Conn, error)
	// NoListen is for where the server can be reached through a transaction
	// pooler only: the feed stays silent, and candidates and observers poll.
	// Without it the feed finds out by itself, and says so once.
	NoListen bool
	// FeedSilence is how long the feed bears to hear nothing before it reads the
	// row, to see whether the server is there. A leader is heard of each half
	// term, so more than that reads only where nobody leads. Zero: 30 s.
	FeedSilence time.Duration
}

// DefaultFeedSilence is what a FeedSilence of zero means.
const DefaultFeedSilence = 30 * time.Second

// Decider is one handle on an election in PostgreSQL. It is a
// leaderelection.RaceDecider and a leaderelection.ChangeFeed; all its methods may be
// called by several goroutines at once.
type Decider struct {
	db       DB
	table    string // as given
	quoted   string // as SQL takes it
	election string
	place    string // where the record is, for errors
	opts     Options
	mode     pgx.QueryExecMode
	bad      error // what is wrong with the names
	close    func()
	found    atomic.Pointer[place]
	deaf     atomic.Int64 // until when there is no use in listening, in Unix seconds

	doubts doubts

	readSQL, updateSQL, insertSQL, touchSQL string
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
	_ DB                         = (*pgxpool.Pool)(nil)
)

// NewDecider returns a handle on the election of that name in a table, whose name
// may have its schema's before it ("ops.elections"); names are taken as they are, in
// upper and lower case. The pool stays the caller's: it must be kept open while the
// Decider is in use, and may serve others. Options may be nil. It does no I/O.
func NewDecider(db DB, table, election string, opts *Options) *Decider {
	d := &Decider{db: db, table: table, quoted: quoted(table), election: election, mode: pgx.QueryExecModeExec}
	d.place = fmt.Sprintf("postgres table %s, election %q", d.quoted, d.election)
	if opts != nil {
		d.opts = *opts
	}
	if d.opts.FeedSilence <= 0 {
		d.opts.FeedSilence = DefaultFeedSilence
	}
	if p, ok := db.(pool); ok && p.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		d.mode = pgx.QueryExecModeSimpleProtocol // some poolers know no other
	}
	parts := strings.Split(table, ".")
	for _, p := range parts {
		if p == "" || len(p) > 63 || len(parts) > 2 || strings.ContainsRune(p, 0) {
			d.bad = errors.New("the table's name must be one or two names with a point between, each of 1 to 63 bytes")
		}
	}
	if election == "" || len(election) > 1000 || strings.ContainsRune(election, 0) {
		d.bad = errors.Join(d.bad, errors.New("the election's name must have 1 to 1000 bytes, none of them zero"))
	}
	d.statements()
	return d
}

// statements makes the SQL. A time is in microseconds since 1970: the same in all
// time zones and date styles. A write answers with its time, or with no row, and
// notifies within its transaction. It waits until it is safe, on the standbys that are
// to have it as well, whatever the session's default is.
func (d *Decider) statements() {
	const (
		micros = `(extract(epoch from written) * 1000000)::int8`
		safe   = `CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN set_config('synchronous_commit', 'on', true) END`
	)
	d.readSQL = fmt.Sprintf(`SELECT version, channel, `+micros+`, record::text FROM %s WHERE election = $1::text`, d.quoted)
	d.updateSQL = fmt.Sprintf(`UPDATE %s SET version = $2::text, written = clock_timestamp(), record = $3::json
WHERE election = $1::text AND version = $4::text
RETURNING `+micros+`, `+safe+`, pg_catalog.pg_notify(channel, `+micros+` || ' ' || $5::text)`, d.quoted)
	d.insertSQL = fmt.Sprintf(`INSERT INTO %s (election, version, written, record, channel)
VALUES ($1::text, $2::text, clock_timestamp(), $3::json, $4::text) ON CONFLICT (election) DO NOTHING
RETURNING `+micros+`, `+safe+`, pg_catalog.pg_notify($5::text, '')`, d.quoted)
	d.touchSQL = fmt.Sprintf(`UPDATE %s SET version = version WHERE election = $1::text AND version = $2::text RETURNING `+safe, d.quoted)
}

// Close closes the pool that Open has made. The pool given to NewDecider is the
// caller's to close.
func (d *Decider) Close() error {
	if d.close != nil {
		d.close()
	}
	return nil
}

// token is a version of the row. An empty one says that there is no row.
type token struct {
	version string
	micros  int64
}

// CommitTS is when the row was written, by the server's clock.
func (t token) CommitTS() time.Time {
	if t.version == "" {
		return time.Time{}
	}
	return time.UnixMicro(t.micros).UTC()
}

// String names the place of the record: table and election.
func (d *Decider) String() string { return d.place }

// ReadCurrent implements leaderelection.RaceDecider. It is as fresh as the server
// that the pool is connected to. A record whose write this handle has begun, and has
// not seen answered, is made sure of first, by a write that changes nothing: see the
// package comment.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	err := d.ready(ctx)
	var e *leaderelection.RaceEntry
	if err == nil {
		e, err = d.current(ctx)
	}
	if err != nil {
		return nil, d.failed(ctx, "reading", err)
	}
	return e, nil
}

// read returns the row, and the channel of its notifications. Where there is no row
// that is empty.
func (d *Decider) read(ctx context.Context, db DB) (e *leaderelection.RaceEntry, channel string, err error) {
	var t token
	var text string
	err = db.QueryRow(ctx, d.readSQL, d.mode, d.election).Scan(&t.version, &channel, &t.micros, &text)
	if errors.Is(err, pgx.ErrNoRows) {
		return &leaderelection.RaceEntry{Token: token{}}, "", nil
	} else if err != nil {
		return nil, "", err
	}
	e, err = d.entry(t, text)
	return e, channel, err
}

func (d *Decider) entry(t token, text string) (*leaderelection.RaceEntry, error) {
	e, err := record.Unmarshal(d.place, []byte(text))
	if err != nil {
		return nil, err
	}
	e.Token = t
	return e, nil
}

// ready returns nil where the names and the table are as they must be.
func (d *Decider) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.bad != nil {
		return permanent("%w", d.bad)
	}
	_, err := d.find(ctx)
	return err
}
