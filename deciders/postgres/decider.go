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
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
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
	b        *backend
	election store.Election[token]
	close    func()
}

// backend is the store: one row of a table.
type backend struct {
	db       DB
	table    string // as given
	quoted   string // as SQL takes it
	election string
	opts     Options
	mode     pgx.QueryExecMode
	found    atomic.Pointer[place]
	deaf     atomic.Int64 // until when there is no use in listening, in Unix seconds

	doubts store.Doubts

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
	b := &backend{db: db, table: table, quoted: quoted(table), election: election, mode: pgx.QueryExecModeExec}
	if opts != nil {
		b.opts = *opts
	}
	if b.opts.FeedSilence <= 0 {
		b.opts.FeedSilence = DefaultFeedSilence
	}
	if p, ok := db.(pool); ok && p.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		b.mode = pgx.QueryExecModeSimpleProtocol // some poolers know no other
	}
	b.statements()
	place := fmt.Sprintf("postgres table %s, election %q", b.quoted, election)
	return &Decider{b: b, election: store.Election[token]{Store: b, Package: "postgres", Place: place, Wrong: checkNames(table, election)}}
}

// checkNames says what PostgreSQL would not allow.
func checkNames(table, election string) (wrong error) {
	parts := strings.Split(table, ".")
	for _, p := range parts {
		if p == "" || len(p) > 63 || len(parts) > 2 || strings.ContainsRune(p, 0) {
			wrong = errors.New("the table's name must be one or two names with a point between, each of 1 to 63 bytes")
		}
	}
	if election == "" || len(election) > 1000 || strings.ContainsRune(election, 0) {
		wrong = errors.Join(wrong, errors.New("the election's name must have 1 to 1000 bytes, none of them zero"))
	}
	return wrong
}

// statements makes the SQL. A time is in microseconds since 1970: the same in all
// time zones and date styles. A write answers with its time, or with no row, and
// notifies within its transaction. It waits until it is safe, on the standbys that are
// to have it as well, whatever the session's default is.
func (b *backend) statements() {
	const (
		micros = `(extract(epoch from written) * 1000000)::int8`
		safe   = `CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN set_config('synchronous_commit', 'on', true) END`
	)
	b.readSQL = fmt.Sprintf(`SELECT version, channel, `+micros+`, record::text FROM %s WHERE election = $1::text`, b.quoted)
	b.updateSQL = fmt.Sprintf(`UPDATE %s SET version = $2::text, written = clock_timestamp(), record = $3::json
WHERE election = $1::text AND version = $4::text
RETURNING `+micros+`, `+safe+`, pg_catalog.pg_notify(channel, `+micros+` || ' ' || $5::text)`, b.quoted)
	b.insertSQL = fmt.Sprintf(`INSERT INTO %s (election, version, written, record, channel)
VALUES ($1::text, $2::text, clock_timestamp(), $3::json, $4::text) ON CONFLICT (election) DO NOTHING
RETURNING `+micros+`, `+safe+`, pg_catalog.pg_notify($5::text, '')`, b.quoted)
	b.touchSQL = fmt.Sprintf(`UPDATE %s SET version = version WHERE election = $1::text AND version = $2::text RETURNING `+safe, b.quoted)
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
func (d *Decider) String() string { return d.election.Place }

// ReadCurrent implements leaderelection.RaceDecider. It is as fresh as the server
// that the pool is connected to. A record whose write this handle has begun, and has
// not seen answered, is made sure of first, by a write that changes nothing: see the
// package comment.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	e, err := d.current(ctx)
	if err != nil {
		return nil, d.election.Failed(ctx, store.Reading, err)
	}
	return e, nil
}

// WriteEntry implements leaderelection.RaceDecider, in one statement.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	t, err := d.election.Write(ctx, entry)
	// A record in doubt would pass for a write of one's own that worked.
	var lost *leaderelection.LostRaceError
	if errors.As(err, &lost) && lost.Current != nil && d.b.inDoubt(lost.Current) {
		lost.Current = nil
	}
	return t, err
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (s store.Stored[token], err error) {
	if _, err := b.find(ctx); err != nil {
		return s, err
	}
	s, _, err = b.read(ctx)
	return s, err
}

// read returns the row, and the channel of its notifications. Where there is no row
// that is empty.
func (b *backend) read(ctx context.Context) (s store.Stored[token], channel string, err error) {
	var text string
	err = b.db.QueryRow(ctx, b.readSQL, b.mode, b.election).Scan(&s.At.version, &channel, &s.At.micros, &text)
	if errors.Is(err, pgx.ErrNoRows) {
		return store.Stored[token]{None: true}, "", nil
	}
	s.Data = []byte(text)
	return s, channel, err
}
