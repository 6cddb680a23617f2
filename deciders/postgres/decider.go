package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/puddle/v2"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/postgres/internal/commit"
	"github.com/c8e606e4/leaderelection/internal/log/durations"
)

// DB is what a Decider needs of pgx: a *pgxpool.Pool. Do not use a single *pgx.Conn: it serves one
// goroutine at a time.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Options adjusts a Decider. The zero value is right for a table that exists, and a pool of direct
// connections to the primary.
type Options struct {
	// CreateTable makes the table, as Schema prints it, if it is missing.
	CreateTable bool
	// Listen opens the connection that the feed listens on. The feed closes it. It must lead to
	// the primary, and not through a transaction pooler. Nil: the feed opens one by the pool's
	// configuration, outside of the pool.
	Listen func(ctx context.Context) (*pgx.Conn, error)
	// NoListen is for servers that you reach only through a transaction pooler: the feed stays
	// silent, and candidates and observers poll. Without it the feed detects this, and says so
	// once.
	NoListen bool
	// FeedSilence is how long the feed tolerates silence before it reads the row, to see
	// whether the server is there. A leader is heard of each half term, so with more than that
	// it reads only if nobody leads. Zero: 30 s.
	FeedSilence time.Duration
}

// Decider is one handle on an election in PostgreSQL. It is a leaderelection.RaceDecider and a
// leaderelection.ChangeFeed. Its methods may be called by several goroutines at once.
type Decider struct {
	b        *backend
	election store.Election[token]
	close    func() error
}

// backend is the store: one row of a table.
type backend struct {
	db       DB
	key      DB            // as it was given
	own      *pgxpool.Pool // of Open; nil: the pool is the caller's
	ear      any           // of Open: what those have in common that listen on one connection
	name     string        // of the table, as given
	mode     pgx.QueryExecMode
	found    atomic.Pointer[relation]
	election string
	opts     Options
	deaf     atomic.Int64 // until when there is no use in listening, in Unix seconds
	proves   atomic.Bool  // commit.Check has passed once
	doubts   *store.Doubts
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
	_ DB                         = (*pgxpool.Pool)(nil)
)

// NewDecider returns a handle on the election of that name in a table, whose name may have a schema
// before it ("ops.elections"). Upper and lower case matter. Configure the pool by Prepare, keep it
// open while you use the Decider, and close it yourself. Best is a pool for the election alone: an
// application that uses up a shared pool costs the leadership. Options may be nil. NewDecider does
// no I/O.
func NewDecider(db DB, name, election string, opts *Options) *Decider {
	b := &backend{db: db, key: db, name: name, mode: pgx.QueryExecModeExec, election: election, doubts: new(store.Doubts)}
	if p, ok := db.(*pgxpool.Pool); ok && p != nil {
		b.db = lender{p}
	}
	if opts != nil {
		b.opts = *opts
	}
	wrong := cmp.Or(checkNames(name, election), durations.Fault("FeedSilence", b.opts.FeedSilence, durations.Least))
	b.opts.FeedSilence = cmp.Or(b.opts.FeedSilence, 30*time.Second)
	if p, ok := db.(pool); ok && !none(db) && p.Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		b.mode = pgx.QueryExecModeSimpleProtocol // some poolers know no other
	}
	d := &Decider{b: b, election: store.Election[token]{Store: b, Package: "postgres", Ours: true, Place: b.place("", "table "+quoted(name)), Wrong: wrong}}
	if none(db) {
		d.election.Wrong = errors.New("the pool is nil")
	}
	return d
}

// none reports whether there is no pool, be it a nil of the pool's type.
func none(db DB) bool {
	p, is := db.(*pgxpool.Pool)
	return db == nil || is && p == nil
}

// Close closes the pool that Open has made. A pool given to NewDecider is yours to close.
func (d *Decider) Close() error {
	if d.close != nil {
		return d.close()
	}
	return nil
}

// Inherit implements open.Heir: a record that may not be on the standbys yet stays in doubt with a
// new client, too.
func (d *Decider) Inherit(from leaderelection.RaceDecider) {
	if earlier, ours := from.(*Decider); ours {
		d.b.doubts = earlier.b.doubts
	}
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

// String names the place of the record: host, database, schema, table and election. Some of this is
// known only after the first call.
func (d *Decider) String() string { return d.election.Where() }

// Where implements store.Placed.
func (b *backend) Where() string {
	if at := b.found.Load(); at != nil {
		return b.place(at.server, at.String())
	}
	return ""
}

// place names the hosts that the pool connects to, or else the server.
func (b *backend) place(server, table string) string {
	if p, ok := b.db.(pool); ok && !none(b.db) {
		c := p.Config().ConnConfig
		hosts := []string{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))}
		for _, f := range c.Fallbacks {
			hosts = append(hosts, net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))))
		}
		server = strings.Join(slices.Compact(hosts), ",")
	}
	if server != "" {
		server = " " + server + ","
	}
	return fmt.Sprintf("postgres%s %s, election %q", server, table, b.election)
}

// ReadCurrent implements leaderelection.RaceDecider. It is as fresh as the server that the pool is
// connected to. While a write of this handle has no response yet, it makes sure of the record
// first, by a write that changes nothing: see the package comment.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	defer d.election.Heed(ctx)()
	e, err := d.current(ctx)
	if err != nil {
		d.b.unheard(ctx, err)
		return nil, d.election.Failed(ctx, store.Reading, err)
	}
	return e, nil
}

// WriteEntry implements leaderelection.RaceDecider, in one statement.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	t, err := d.election.Write(ctx, entry)
	d.b.unheard(ctx, err)
	// A record in doubt would pass for a write of one's own that worked.
	var lost *leaderelection.LostRaceError
	if errors.As(err, &lost) && lost.Current != nil && d.b.inDoubt(lost.Current) {
		lost.Current = nil
	}
	return t, err
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (s store.Stored[token], err error) {
	s, _, err = b.read(ctx)
	return s, err
}

// read returns the row, and the channel of its notifications. Where there is no row
// that is empty.
func (b *backend) read(ctx context.Context) (s store.Stored[token], channel string, err error) {
	at, err := b.find(ctx)
	if err != nil {
		return s, "", err
	}
	var text string
	err = b.db.QueryRow(ctx, at.read, b.mode, b.election).Scan(&s.At.version, &channel, &s.At.micros, &text)
	if errors.Is(err, pgx.ErrNoRows) {
		return store.Stored[token]{None: true}, "", nil
	}
	s.Data = []byte(text)
	return s, channel, err
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, was token, data []byte, e *leaderelection.RaceEntry) (none token, err error) {
	at, err := b.find(ctx)
	if err != nil {
		return none, err
	}
	// One who could not prove that it was elected does not keep others out for a term.
	if !b.proves.Load() {
		if err := commit.Run(ctx, b.db, commit.Check, []any{b.mode}); err != nil {
			return none, err
		}
		b.proves.Store(true)
	}
	for tries := 0; ; tries++ {
		// Never the same twice, even when the row was deleted and made again.
		now := token{version: rand.Text()}
		sql, more := at.update, [2]string{was.version, payload(now.version, data)}
		if was.version == "" {
			sql, more = at.insert, [2]string{newChannel(), at.hello(b.election)}
		}
		number, lost := b.doubts.Begin(e.Incarnation)
		err = commit.Run(ctx, b.db, sql, []any{b.mode, b.election, now.version, string(data), more[0], more[1]}, &now.micros, nil)
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

// current reads the row. One in doubt it touches, which waits for the row's lock, and
// then for all that was written before to be safe.
func (d *Decider) current(ctx context.Context) (*leaderelection.RaceEntry, error) {
	replaced := map[string]bool{}
	for {
		e, err := d.election.Current(ctx)
		if err != nil || !d.b.inDoubt(e) {
			return e, err
		}
		version := e.Token.(token).version
		if replaced[version] {
			return nil, store.ErrLags
		}
		var at *relation
		if at, err = d.b.find(ctx); err != nil {
			return nil, err
		}
		err = d.b.touch(ctx, at.touch, []any{d.b.mode, d.b.election, version})
		switch {
		case err == nil:
			d.b.doubts.Settle(version)
			return e, nil
		case errors.Is(err, pgx.ErrNoRows):
			replaced[version] = true
		case code(err) != serializationFailure:
			return nil, fmt.Errorf("making sure that an earlier write, which had no response, is safe and on the standbys: %w", err)
		}
	}
}

// touch makes sure of a record that is in doubt. It may be given up early without harm, since
// it changes nothing, and then says what the server waits for.
func (b *backend) touch(ctx context.Context, sql string, args []any) error {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := commit.Run(within, b.db, sql, args)
	if err == nil || within.Err() == nil || ctx.Err() != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, patience/6)
	defer cancel()
	var names string
	var streaming int
	switch asked := b.db.QueryRow(asking, waitsFor, b.mode).Scan(&names, &streaming); {
	case asked != nil:
		return fmt.Errorf("no answer within %v: %w", patience, err)
	case names != "":
		return fmt.Errorf("the server waits for a synchronous standby (synchronous_standby_names is %q, and replication has %d receivers): bring the standby back: %w", names, streaming, err)
	}
	return fmt.Errorf("no answer within %v: see who has a transaction open on the table (pg_stat_activity, pg_locks): %w", patience, err)
}

const waitsFor = `SELECT current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_catalog.pg_stat_replication)`

// inDoubt reports whether a record that was read may be on this server alone. A session
// that commits is seen by others when its standbys have the write, or when its wait for
// them ends early: by a cancellation (pgx sends one when a ctx ends), by a termination,
// by a crash.
func (b *backend) inDoubt(e *leaderelection.RaceEntry) bool {
	t, _ := e.Token.(token)
	return b.doubts.About(e.Incarnation, t.version)
}

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict {
	if c := code(err); c != "" {
		return b.judge(c)
	}
	switch {
	case errors.Is(err, puddle.ErrClosedPool):
		return store.Permanent("keep the pool open while the election goes on")
	case store.BadCertificate(err):
		return store.Permanent("check the server's certificate, sslmode and tls_ca")
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return store.Permanent("switch TLS on at the server, or lower sslmode")
	}
	return store.Verdict{}
}

var _ durability.Examiner = (*Decider)(nil)

// settings asks for what may lose a write. Anybody may ask; synchronous_commit is not
// among it, since a write raises it for itself.
const settings = `SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
	pg_catalog.pg_is_in_recovery(), (SELECT count(*) FROM pg_catalog.pg_stat_replication),
	(SELECT COALESCE(string_agg(DISTINCT n.nspname::text, ', '), '') FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind = 'r' AND c.relname = $1::text AND n.nspname <> $2::text AND n.nspname !~ '^pg_')`

// Durability implements durability.Examiner. It asks the server which of the causes under "What
// PostgreSQL promises" in the package's documentation apply. An UNLOGGED table is an error, as for
// each other call. It needs no more than Permissions.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	var fsync, pages, names, others string
	var standby bool
	var receivers int
	var at *relation
	err := d.election.Ready(ctx)
	if err == nil {
		at, err = d.b.find(ctx)
	}
	if err == nil {
		err = commit.Run(ctx, d.b.db, commit.Check, []any{d.b.mode})
	}
	if err == nil {
		err = d.b.db.QueryRow(ctx, settings, d.b.mode, at.table, at.schema).Scan(&fsync, &pages, &names, &standby, &receivers, &others)
	}
	if err != nil {
		return nil, d.election.Failed(ctx, "examining the server of", err)
	}
	var all []durability.Warning
	warn := func(is bool, detail, advice string) {
		if is {
			all = append(all, durability.Warning{Detail: detail, Advice: advice})
		}
	}
	warn(standby, "pg_is_in_recovery is true: this server is a standby, takes no writes, and may be behind", "name the primary in the URL, as with target_session_attrs=read-write")
	warn(fsync == "off", "fsync is off: a crash of the machine forgets confirmed writes, and two may lead", "set fsync = on")
	warn(pages == "off", "full_page_writes is off: a crash of the machine may leave a torn page, and with it no record or an old one, so that two may lead", "set full_page_writes = on")
	warn(!standby && names == "" && receivers > 0,
		fmt.Sprintf(`synchronous_standby_names is "", and replication has %d receivers: a fail-over to one that lags forgets a confirmed write, and two may lead`, receivers),
		"name in it each standby that a fail-over may promote, all of which must answer, such as FIRST 2 (a, b); or let a term pass before a new primary serves")
	must, of := commit.Quorum(names, receivers)
	warn(!standby && names != "" && must < of,
		fmt.Sprintf("synchronous_standby_names is %q: a write is confirmed when %d of %d standbys have it, a fail-over to another standby forgets it, and two may lead", names, must, of),
		fmt.Sprintf("let a fail-over promote only the most advanced of at least %d of these standbys; or name two or more, all of which must answer; or let a term pass before a new primary serves", of-must+1))
	warn(!standby && names != "" && receivers > of,
		fmt.Sprintf("synchronous_standby_names is %q, and replication has %d receivers: a fail-over to one that is not named forgets confirmed writes, and two may lead", names, receivers),
		"never promote the others, or name them")
	warn(others != "" && !strings.Contains(d.b.name, "."),
		fmt.Sprintf("this is %s, and there are tables of that name in the schemas %s: a candidate with another search_path takes part in another election, and leads as well", at, others),
		"name the schema, as in table="+at.schema+"."+at.table+", or drop the others")
	return all, nil
}
