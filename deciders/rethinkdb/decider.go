// Package rethinkdb keeps an election in RethinkDB, as one row. A replace, conditional on the
// version that was read, decides who leads. A changefeed on the row tells candidates and observers
// of it.
//
//	session, err := r.Connect(r.ConnectOpts{Address: "localhost:28015", ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second})
//	...
//	decider := rethinkdb.NewDecider(session, "ops", "elections", "web", nil)
//
// # What it was tried on
//
// The tests run whole elections through the real driver on an imitation of the server, which
// understands the queries of this package. It behaves as a RethinkDB 2.4.4 (one server, and three)
// did: it tells changefeeds of what it later undoes, and stalls writes. To run the suite, the hand-over
// and three processes on a server as well, set LEADERELECTION_TEST_RETHINKDB to its host:port.
// docs/reliability.md has what RethinkDB 2.4.4 did.
//
// # What is written where
//
// There is one row, whose primary key "id" is the election's name:
//
//	{id: "web", version: "8f0c...", record: "{...}", written: r.now()}
//
// Record is the JSON that all stores keep. Each write gives the row a new random version, which no
// earlier one had. Other fields stay as they are. Names are UTF-8, and the election's has at most
// 127 bytes. A row whose record is empty is damage, and is left alone. Never delete the row: the
// election is then empty, and nothing shows that there was a record.
//
// Make database and table once, before the candidates start, in RethinkDB's data explorer or by its
// driver. The table's primary key must be "id":
//
//	r.dbCreate("ops")
//	r.db("ops").tableCreate("elections", {replicas: 3, durability: "hard"})
//
// This package makes no tables. If two processes make one table at once, RethinkDB makes two of one
// name, and then refuses every query for either ("is ambiguous").
//
// # Permissions
//
// Candidates need read and write on the table, observers read. leaderelect doctor
// (Decider.Durability) needs config on the table.
//
// # What RethinkDB promises
//
// Writes to one row are atomic, so of two replaces of one version one finds the row changed. Each
// write asks for durability "hard", and is read back in read_mode "majority" before it counts. Such
// a read is answered when a majority has on disk what it read: see
// https://rethinkdb.com/docs/consistency/. So if a table's write_acks is "single", and a fail-over
// forgets an acknowledged write, that write elects no leader. If a call gives up, the server ends
// its waiting, but not the write. Such a read does not show the write any sooner.
//
// Writes that have counted can be lost by emergency repair, which gives up the replicas that are
// out of reach, and by disks that lie about fsync. A table with one replica is as durable as that
// server.
//
// The server's time, in milliseconds, is kept with each write: CommitTS.
//
// # What it costs
//
// A leader writes about 515 times an hour at the default term of 15 s, each time with an fsync and
// a read. Standbys and observers hold one changefeed and ask nothing while it is healthy. Without
// one they would read 480 times an hour. A row has at most 256 KiB here.
//
// # How the feed works
//
// The changefeed of one row begins with the row as it is (include_initial), so it misses nothing.
// It ends with an error if the connection breaks or the row's primary replica becomes unavailable.
// Candidates then poll and open it again.
//
// RethinkDB sends a change when the primary replica has it in memory, before the majority and the
// disks have it. If the primary was cut off or dies, the change is undone without another word. So
// news is only a reason to read: no candidate leads by it.
//
// # Several servers
//
// If Open's URL names several servers, it uses one of them. It uses the next one if that server
// fails, does not answer or has lost the others. A server that was down at first is used when it is
// back. The driver's own session for several addresses never does that. Do not set
// ConnectOpts.DiscoverHosts: the driver (v6.2.1) then dereferences nil, and ends the process, when
// any server goes away.
//
// The driver waits for a silent server as long as its ReadTimeout and WriteTimeout say, or for ever
// if one of them is zero, even if a context has ended. A Decider's calls return at the end of their
// ctx all the same, but each leaves a goroutine behind until the driver gives up: set both.
//
// The driver sends all queries over one connection. If that dies silently, as when a NAT forgets
// it, the driver goes on with it until the system gives it up after minutes. Open replaces its
// session if a call is given up and nothing was answered since the call began. For a session of
// yours, call its Reconnect if calls keep failing.
package rethinkdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	r "gopkg.in/rethinkdb/rethinkdb-go.v6"
	"gopkg.in/rethinkdb/rethinkdb-go.v6/encoding"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/durability"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// Options adjusts a Decider. There is nothing to adjust yet. Pass nil.
type Options struct{}

// Decider is an election in RethinkDB. It is a leaderelection.RaceDecider and a
// leaderelection.ChangeFeed. Its methods may be called by several goroutines at once.
type Decider struct {
	b        *backend
	election store.Election[version]
	close    func() error // if the sessions are the Decider's own
}

// backend is the store: one row of a table.
type backend struct {
	sessions        sessions
	database, table string
	id              string
	calls           within.Calls
	turns           chan struct{} // one at a time, see turn
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
	_ durability.Examiner        = (*Decider)(nil)
)

// sessions is where a Decider's queries run.
type sessions interface {
	// Use returns a session, for as long as ctx lasts.
	Use(ctx context.Context) (r.QueryExecutor, error)
	// Ended is told how a query on it has ended.
	Ended(on r.QueryExecutor, err error)
}

// callers is the session that NewDecider was given: what becomes of it is the caller's
// affair.
type callers struct{ r.QueryExecutor }

func (c callers) Use(context.Context) (r.QueryExecutor, error) { return c.QueryExecutor, nil }
func (c callers) Ended(r.QueryExecutor, error)                 {}

// row is what is stored.
type row struct {
	ID      string    `rethinkdb:"id"`
	Version string    `rethinkdb:"version"`
	Record  string    `rethinkdb:"record"`
	Written time.Time `rethinkdb:"written"`
}

// version is a LeaderToken. The empty id is the version of what is not there.
type version struct {
	id      string
	written time.Time
}

// CommitTS is the server's time of the write, to the millisecond.
func (v version) CommitTS() time.Time { return v.written }

// maxCalls is how many queries may be under way at once, those included that were
// given up and that the driver still waits for.
const maxCalls = 32

// NewDecider returns the election kept in the row with id election, in the table of the database.
// Keep the session, a *r.Session, open while you use the Decider, and close it yourself. Others may
// use it, too. Options may be nil.
func NewDecider(session r.QueryExecutor, database, table, election string, _ *Options) *Decider {
	d := newDecider(callers{session}, database, table, election)
	if s, is := session.(*r.Session); session == nil || is && s == nil {
		d.election.Wrong = errors.New("the session is nil")
	}
	return d
}

func newDecider(on sessions, database, table, election string) *Decider {
	b := &backend{sessions: on, database: database, table: table, id: election,
		calls: make(within.Calls, maxCalls), turns: make(chan struct{}, 1)}
	d := &Decider{b: b, election: store.Election[version]{Store: b, Package: "rethinkdb", Ours: true, Place: fmt.Sprintf("RethinkDB %s.%s id %q", database, table, election)}}
	switch {
	case election == "":
		d.election.Wrong = errors.New("the election has no name; give it one")
	case !utf8.ValidString(database + table + election):
		d.election.Wrong = errors.New("a name is not UTF-8: RethinkDB would store another in its place")
	}
	return d
}

// Close closes the session that Open has made. For a session given to NewDecider it does nothing.
func (d *Decider) Close() error {
	if d.close == nil {
		return nil
	}
	return d.close()
}

// Durability implements durability.Examiner: it asks for the table's configuration.
func (d *Decider) Durability(ctx context.Context) ([]durability.Warning, error) {
	const doing = "examining the table of"
	if err := d.election.Ready(ctx); err != nil {
		return nil, d.election.Failed(ctx, doing, err)
	}
	c, err := query[*configuration](ctx, d.b, r.DB(d.b.database).Table(d.b.table).Config())
	if err == nil && (c == nil || len(c.Shards) == 0) {
		err = errors.New("the server's answer describes no table")
	}
	if err != nil {
		return nil, d.election.Failed(ctx, doing, err)
	}
	return c.examine(d.b), nil
}

// configuration is what RethinkDB tells of a table.
type configuration struct {
	WriteAcks string `rethinkdb:"write_acks"`
	Shards    []struct {
		Replicas []string `rethinkdb:"replicas"`
	} `rethinkdb:"shards"`
}

func (c *configuration) examine(b *backend) (all []durability.Warning) {
	table := fmt.Sprintf("r.db(%q).table(%q)", b.database, b.table)
	if c.WriteAcks != "majority" {
		all = append(all, durability.Warning{
			Detail: fmt.Sprintf("write_acks is %q: the server acknowledges writes that a fail-over may forget. Candidates are safe, since they read each write back from a majority. Other rows of the table may be lost", c.WriteAcks),
			Advice: table + `.config().update({write_acks: "majority"})`,
		})
	}
	for _, s := range c.Shards {
		if len(s.Replicas) < 3 {
			all = append(all, durability.Warning{
				Detail: fmt.Sprintf("the table has %d replicas: nobody can lead while one of them is away, and what only one has is lost with its disk", len(s.Replicas)),
				Advice: table + ".reconfigure({shards: 1, replicas: 3})",
			})
			break
		}
	}
	return all
}

// String names the place of the record: table and document, and the servers that Open was
// given (a session does not tell its own).
func (d *Decider) String() string { return d.election.Place }

// ReadCurrent implements leaderelection.RaceDecider.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.election.Read(ctx)
}

// WriteEntry implements leaderelection.RaceDecider, in one query. A refusal is a
// leaderelection.LostRaceError with the current record.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (s store.Stored[version], err error) {
	found, err := query[*row](ctx, b, b.get())
	if err != nil {
		return s, err
	}
	return b.stored(found)
}

// get is the row, as a majority of its replicas has it.
func (b *backend) get() r.Term {
	return r.DB(b.database).Table(b.table, r.TableOpts{ReadMode: "majority"}).Get(b.id)
}

// stored is what a row says; nil is that of an empty election.
func (b *backend) stored(found *row) (s store.Stored[version], err error) {
	switch {
	case found == nil:
		return store.Stored[version]{None: true}, nil
	case found.Version == "" || found.ID != b.id:
		return s, store.Wrong("the row has no version, or another id: it is not ours, or was edited, or the table's primary key is not \"id\": repair or remove it, or give elections a table of their own")
	}
	return store.Stored[version]{Data: []byte(found.Record), At: version{found.Version, found.Written.UTC()}}, nil
}

// written is RethinkDB's answer to a write.
type written struct {
	Errors     int    `rethinkdb:"errors"`
	FirstError string `rethinkdb:"first_error"`
	Skipped    int    `rethinkdb:"skipped"`
	Changes    []struct {
		New *row `rethinkdb:"new_val"`
	} `rethinkdb:"changes"`
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, at version, data []byte, _ *leaderelection.RaceEntry) (none version, err error) {
	next := rand.Text()
	answer, err := query[*written](ctx, b, b.replace(at.id, next, string(data)))
	if err == nil {
		err = answer.check()
	}
	if err != nil {
		return none, err
	}
	var now *row
	if len(answer.Changes) == 1 {
		now = answer.Changes[0].New
	}
	if now != nil && now.Version == next {
		return version{next, now.Written.UTC()}, b.kept(ctx, next)
	}
	if now != nil || answer.Skipped == 1 {
		if s, err := b.stored(now); err == nil { // one that cannot be read is ReadCurrent's to report
			return none, &store.Refusal[version]{Current: s}
		}
	}
	return none, &leaderelection.LostRaceError{}
}

// kept returns an error unless a majority of the replicas has the version on disk. The
// answer to a write shows that only if the table's write_acks is "majority".
func (b *backend) kept(ctx context.Context, version string) error {
	s, err := b.Load(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("the write was acknowledged, but reading whether a majority has it failed: %w", err)
	case s.At.id != version:
		return errors.New("the write was acknowledged, but a majority does not have it: it was undone, or written over")
	}
	return nil
}

// check reports whether the answer is one that decides the race.
func (w *written) check() error {
	switch {
	case w == nil:
		return errors.New("the server's answer is empty")
	case w.Errors > 0:
		return errors.New(w.FirstError)
	case len(w.Changes) == 0 && w.Skipped == 0, len(w.Changes) > 1:
		return fmt.Errorf("the server's answer has %d changes, where return_changes demands one", len(w.Changes))
	}
	return nil
}

// replace is the conditional write: the new row where the stored version is at, or
// where there is no row and at is empty, and else the row as it is.
func (b *backend) replace(at, next, data string) r.Term {
	fields := map[string]any{"id": b.id, "version": next, "record": data, "written": r.Now()}
	return r.DB(b.database).Table(b.table).Get(b.id).Replace(func(was r.Term) any {
		if at == "" {
			return r.Branch(was.Eq(nil), fields, was)
		}
		return r.Branch(was.Ne(nil).And(was.Field("version").Default("").Eq(at)), was.Merge(fields), was)
	}, r.ReplaceOpts{Durability: "hard", ReturnChanges: "always"})
}

// maxTurn is how long a query waits for the one before it.
const maxTurn = 250 * time.Millisecond

// turn waits until no other query of this Decider begins, but not for long. When a
// connection has broken, the driver's pool makes a new one for whoever asks next, and
// does not guard that against two who ask at once.
func (b *backend) turn(ctx context.Context) (over func()) {
	timeout := time.NewTimer(maxTurn)
	defer timeout.Stop()
	select {
	case b.turns <- struct{}{}:
		return func() { <-b.turns }
	case <-timeout.C: // the server is slow: then it has no broken connections
	case <-ctx.Done():
	}
	return func() {}
}

// query runs a query that has one result, which is T's zero if that is null. The
// driver does not obey ctx while the server is silent: query does, and leaves the
// driver to itself.
func query[T any](ctx context.Context, b *backend, term r.Term) (T, error) {
	var none T
	on, err := b.sessions.Use(ctx)
	if err != nil {
		return none, err
	}
	got, err := within.Do(ctx, b.calls, func() (value T, err error) {
		over := b.turn(ctx)
		defer over()
		cursor, err := term.Run(on, r.RunOpts{Context: ctx})
		if err == nil {
			err = cursor.One(&value)
		}
		if errors.Is(err, r.ErrEmptyResult) {
			err = nil
		}
		return value, err
	})
	b.sessions.Ended(on, err)
	if err != nil {
		err = brief{err}
	}
	return got, err
}

// remedies says what to do about errors that no retry can cure. RethinkDB tells them
// from those that pass in words only: a table that does not exist and one whose
// replicas are out of reach have the same code.
var remedies = store.Remedies{
	{Part: "does not exist", Advice: "create database and table once, before the candidates begin: r.dbCreate(\"ops\"), r.db(\"ops\").tableCreate(\"elections\", {replicas: 3, durability: \"hard\"})"},
	{Part: "does not have the required `config`", Advice: "only examining the table needs this: grant the user config on it", Denied: true},
	{Part: "does not have the required", Advice: "grant the user read and write on the table", Denied: true},
	{Part: "Primary key too long", Advice: "give the election a name of at most 127 bytes"},
	{Part: "Inserted object must have primary key", Advice: otherKey},
	{Part: "Primary key `", Advice: otherKey},
	{Part: "Expected type", Advice: otherKey},
	{Part: "is ambiguous", Advice: "two processes have made it at once. Stop the candidates, give all but one of them other names (rethinkdb.table_config has a row for each), see which has the election's row, and drop the empty ones"},
	{Part: "Wrong password", Advice: "user or password are wrong", Denied: true},
	{Part: "Unknown user", Advice: "user or password are wrong", Denied: true},
	{Part: "failed to verify certificate", Advice: "trust the authority of the server's certificate (tls_ca in a URL, TLSConfig.RootCAs), and connect by a name that it has"},
	{Part: "remote error: tls:", Advice: "show the server a certificate that it accepts (tls_cert and tls_key in a URL, TLSConfig.Certificates)"},
	{Part: "first record does not look like a TLS handshake", Advice: "the server does not speak TLS on this port"},
}

const otherKey = "the table's primary key must be \"id\": give elections a table of their own"

// Judge implements store.Store.
func (b *backend) Judge(err error) store.Verdict { return judge(err) }

func judge(err error) store.Verdict {
	if v := remedies.Judge(brief{err}); v != (store.Verdict{}) {
		return v
	}
	switch {
	case is[*encoding.DecodeTypeError](err):
		return store.Permanent("the row is not ours, or was edited: repair or remove it")
	case is[r.RQLClientError](err), is[r.RQLServerCompileError](err), is[r.RQLCompileError](err), is[r.RQLQueryLogicError](err), is[r.RQLAuthError](err):
		return store.Permanent("the server does not accept the query")
	}
	return store.Verdict{}
}

// is reports whether err wraps one of that type.
func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// brief is an error without the query, which the driver adds to its text, and in which
// there is all that the candidate writes.
type brief struct{ error }

func (b brief) Error() string {
	text, _, _ := strings.Cut(b.error.Error(), " in:\n")
	return text
}
func (b brief) Unwrap() error { return b.error }
