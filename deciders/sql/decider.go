package sql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// Options adjusts a Decider. The zero value is right for a table that exists.
type Options struct {
	// CreateTable makes the table, as Dialect.Schema prints it, if it is missing.
	CreateTable bool
	// Close is what Decider.Close calls, such as the pool's Close. Nil: nothing.
	Close func() error
	// Drop closes the pool's idle connections. It is called when a call is given up: the others
	// may have died silently, too, and each would cost another call. Nil: nothing.
	Drop func()
}

// Decider is one handle on an election in an SQL database. It is a leaderelection.RaceDecider and a
// durability.Examiner. Its methods may be called by several goroutines at once. It does not push:
// candidates and observers poll, see deciders/hinted.
type Decider struct {
	b        *backend
	election store.Election[token]
}

// backend is the store: one row of a table.
type backend struct {
	db       *sql.DB
	dialect  Dialect
	table    string // as given
	election string
	opts     Options
	sql      statements
	found    atomic.Bool            // the table was looked at, and will do
	at       atomic.Pointer[string] // where it was found
	calls    within.Calls           // a driver may ignore a ctx
	mark     string                 // in the text of each statement, if Dialect.Running asks for it
	strayed  atomic.Bool            // some call was given up, and may still be running at the server
	doubts   *store.Doubts
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ durability.Examiner        = (*Decider)(nil)
)

// maxCalls is how many calls of one handle may be under way at once, those included that
// were given up and have not returned.
const maxCalls = 16

// What names may have, in bytes.
const (
	maxTable    = 64  // MySQL's limit, for each part
	maxElection = 255 // the column's
)

// NewDecider returns a handle on the election of that name in a table, whose name may have a schema
// before it ("ops.elections"). Keep the pool open while you use the Decider. Unless Options.Close
// closes it, close it yourself. Best is a pool for the election alone: an application that uses up
// a shared pool costs the leadership. In a shared pool nobody may leave a transaction open in a
// connection (sql.Tx does not). Options may be nil. NewDecider does no I/O.
func NewDecider(db *sql.DB, dialect Dialect, table, election string, opts *Options) *Decider {
	d := dialect.withDefaults()
	b := &backend{db: db, dialect: d, table: table, election: election, sql: d.statements(table), calls: make(within.Calls, maxCalls), doubts: new(store.Doubts)}
	if opts != nil {
		b.opts = *opts
	}
	if d.Running != nil {
		b.mark = "leaderelection " + rand.Text()
	}
	e := &Decider{b: b, election: store.Election[token]{Store: b, Package: "sql", Ours: true, Place: b.place(d.Name), Wrong: Check(table, election)}}
	if db == nil {
		e.election.Wrong = errors.New("the pool is nil")
	}
	if drop := b.opts.Drop; drop != nil {
		e.election.Drop = func(time.Time) { drop() }
	}
	return e
}

// Check returns what is wrong with these names for NewDecider, or nil. It does no I/O.
func Check(table, election string) (wrong error) {
	parts := strings.Split(table, ".")
	for _, p := range parts {
		if p == "" || len(p) > maxTable || len(parts) > 2 || strings.ContainsRune(p, 0) || strings.HasSuffix(p, " ") {
			wrong = fmt.Errorf("the table's name must be one or two names with a dot between, each of 1 to %d bytes, without a blank at the end", maxTable)
		}
	}
	if election == "" || len(election) > maxElection || strings.ContainsRune(election, 0) {
		wrong = errors.Join(wrong, fmt.Errorf("the election's name must have 1 to %d bytes, none of them zero", maxElection))
	}
	return wrong
}

// Close calls Options.Close.
func (d *Decider) Close() error {
	if d.b.opts.Close != nil {
		return d.b.opts.Close()
	}
	return nil
}

// Inherit implements open.Heir: a record that may not be safe yet stays in doubt with a new client,
// too. Calls of the old client that were given up, and go on, count for the new one as well.
func (d *Decider) Inherit(from leaderelection.RaceDecider) {
	if earlier, ours := from.(*Decider); ours {
		d.b.doubts, d.b.calls, d.b.mark = earlier.b.doubts, earlier.b.calls, earlier.b.mark
		d.b.strayed.Store(true) // which the server is asked about
	}
}

// token is a version of the row. An empty one says that there is no row.
type token struct {
	version string
	micros  int64 // zero: unknown
}

// CommitTS is when the row was written, by the server's clock. It is zero if the server does not
// say.
func (t token) CommitTS() time.Time {
	if t.version == "" || t.micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(t.micros).UTC()
}

// String names the place of the record: server and database or file, table and election. Some of
// this is known only after the first call.
func (d *Decider) String() string { return d.election.Where() }

// Where implements store.Placed.
func (b *backend) Where() string {
	if at := b.at.Load(); at != nil {
		return b.place(b.dialect.Name + " " + *at + ",")
	}
	return ""
}

func (b *backend) place(at string) string {
	return fmt.Sprintf("%s table %s, election %q", at, b.dialect.quoted(b.table), b.election)
}

// ReadCurrent implements leaderelection.RaceDecider. It is as fresh as the server that the pool is
// connected to. While a write of this handle has no response yet, it makes sure of the record
// first, by a write that changes next to nothing: see the package comment.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	defer d.election.Heed(ctx)()
	e, err := d.current(ctx)
	if err != nil {
		return nil, d.election.Failed(ctx, store.Reading, err)
	}
	return e, nil
}

// WriteEntry implements leaderelection.RaceDecider, in one statement.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// Durability implements durability.Examiner. It asks the server which parts of "What can lose a
// confirmed write" in the package's documentation apply.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	err := d.election.Ready(ctx)
	if err == nil {
		err = d.b.look(ctx)
	}
	if err == nil && d.b.dialect.Durability == nil {
		err = fmt.Errorf("there is no setting of %s that is known to matter", d.b.dialect.Name)
	}
	var all []durability.Warning
	if err == nil {
		all, err = within.Do(ctx, d.b.calls, func() ([]durability.Warning, error) { return d.b.dialect.Durability(ctx, d.b.db) })
	}
	if err != nil {
		err = d.election.Failed(ctx, "examining the server of", err)
	}
	return all, err
}

// current reads the row. One in doubt it touches, which waits for whoever has its lock,
// and is safe only when all that was written before it is.
func (d *Decider) current(ctx context.Context) (*leaderelection.RaceEntry, error) {
	b := d.b
	replaced := map[string]bool{}
	for {
		e, err := d.election.Current(ctx)
		if err != nil {
			return nil, err
		}
		version := e.Token.(token).version
		if !b.doubts.About(e.Incarnation, version) {
			return e, nil
		}
		if replaced[version] {
			return nil, store.ErrLags
		}
		_, changed, err := b.exec(ctx, b.sql.touch, b.election, version)
		switch {
		case err != nil:
			return nil, fmt.Errorf("making sure that an earlier write, which had no response, is safe and on the replicas: %w", err)
		case changed:
			b.doubts.Settle(version)
			return e, nil
		}
		// It was replaced meanwhile, or the session may not write: read again.
		replaced[version] = true
		if err := b.alone(ctx); err != nil {
			return nil, err
		}
	}
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (store.Stored[token], error) {
	if err := b.look(ctx); err != nil {
		return store.Stored[token]{}, err
	}
	return do(ctx, b, func() (store.Stored[token], error) { return b.load(ctx) })
}

func (b *backend) load(ctx context.Context) (s store.Stored[token], err error) {
	c, err := b.conn(ctx)
	if err != nil {
		return s, err
	}
	defer c.Close()
	rows, err := c.QueryContext(ctx, b.marked(b.sql.read), b.election)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	if !rows.Next() {
		return store.Stored[token]{None: true}, rows.Err()
	}
	var election, version sql.NullString
	var written sql.NullInt64
	if err := rows.Scan(&election, &version, &written, &s.Data); err != nil {
		return s, b.otherTable(err)
	}
	switch {
	case election.String != b.election:
		return s, b.otherTable(fmt.Errorf("it takes %q for %q", election.String, b.election))
	case version.String == "":
		return s, store.Wrong("the row has no version: repair or delete it while no candidate runs")
	case rows.Next():
		return s, b.otherTable(errors.New("there are two rows of this election"))
	}
	if s.At = (token{version: version.String}); b.dialect.Now != "" {
		s.At.micros = written.Int64
	}
	return s, errors.Join(rows.Err(), rows.Close())
}

// otherTable is the error about a table that is not as it must be.
func (b *backend) otherTable(err error) error {
	return store.Wrong("the table must be as in\n%s: %w", b.dialect.Schema(b.table), err)
}

// look looks at the table once; one that does not do is looked at again.
func (b *backend) look(ctx context.Context) error {
	if b.found.Load() || b.dialect.Inspect == nil && !b.opts.CreateTable {
		return nil
	}
	found, err := b.inspect(ctx)
	if err == nil && !found && b.opts.CreateTable {
		if _, err := do(ctx, b, func() (sql.Result, error) {
			return b.db.ExecContext(ctx, b.marked(b.dialect.Schema(b.table)))
		}); err != nil {
			return fmt.Errorf("making the table: %w", err)
		}
		found, err = b.inspect(ctx)
	}
	if err != nil {
		return err
	}
	// If it is not found, the statement to come says why.
	b.found.Store(found || b.dialect.Inspect == nil)
	return nil
}

func (b *backend) inspect(ctx context.Context) (found bool, err error) {
	if b.dialect.Inspect == nil {
		return false, nil
	}
	schema, table, two := strings.Cut(b.table, ".")
	if !two {
		schema, table = "", b.table
	}
	at, err := do(ctx, b, func() (string, error) { return b.dialect.Inspect(ctx, b, schema, table) })
	if err == nil && at != "" {
		b.at.Store(&at)
	}
	return at != "", err
}
