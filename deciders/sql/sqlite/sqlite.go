// Package sqlite keeps an election in a SQLite database, for the processes of one machine. Use it
// if they have such a database already, or as the default of a program that may get a server later.
// It uses modernc.org/sqlite, which needs no C compiler.
//
//	db, err := sqlite.NewDB("/var/lib/myapp/app.db", &sqlite.Options{Create: true}) // a *sql.DB as elections need it
//	...
//	decider := sql.NewDecider(db, sqlite.Dialect(), "leaderelection", "web", &sql.Options{CreateTable: true})
//
// All candidates are on one machine and share its clock: set the ClockPolicy to SharedClock for all
// of them. See deciders/sql for what is written where, and what can lose a confirmed write. This
// package links the driver, deciders/sql does not.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/c8e606e4/leaderelection/deciders/internal/networkfs"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	lesql "github.com/c8e606e4/leaderelection/deciders/sql"
	"github.com/c8e606e4/leaderelection/internal/clients"
	"github.com/c8e606e4/leaderelection/internal/log/durations"
)

// Dialect is sql.SQLite with the driver's errors.
func Dialect() lesql.Dialect {
	return lesql.SQLite(func(err error) int {
		var refused *sqlite.Error
		if errors.As(err, &refused) {
			return refused.Code()
		}
		return 0
	})
}

// Options adjusts NewDB. The zero value and nil are the same.
type Options struct {
	// Create makes the file if it is missing, and has the database in WAL mode, which an election requires.
	Create bool
	// AllowNetwork allows a file on a file system that is, or may be, on another machine. Set
	// it only if you know that this machine alone uses the file: SQLite relies on the file
	// system's locks, and across machines two may lead.
	AllowNetwork bool
	// BusyTimeout is how long a statement waits for others' locks. It must be shorter than a
	// quarter of a term. Otherwise the campaign gives up the call first, and does not learn
	// that the database was locked. Zero: 2 s.
	BusyTimeout time.Duration
}

// maxConns is how many connections a pool may have: mostly one is open.
const maxConns = 8

// NewDB opens a pool as elections need it, with synchronous = FULL in each connection. If a connection's file was moved, removed or replaced, the pool opens
// a connection to the file that is there now. NewDB reads no file, and at most makes one.
func NewDB(path string, opts *Options) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if err := durations.Fault("BusyTimeout", o.BusyTimeout, durations.Least); err != nil {
		return nil, fmt.Errorf("leaderelection/sqlite: %w", err)
	}
	if kind, unknown := networkfs.Kind(filepath.Dir(abs)); !o.AllowNetwork {
		if err := local(filepath.Dir(abs), kind, unknown); err != nil {
			return nil, err
		}
	}
	query := url.Values{"mode": {"rw"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", cmp.Or(o.BusyTimeout, 2*time.Second).Milliseconds()), "synchronous(FULL)",
	}}
	if o.Create {
		query.Set("mode", "rwc")
		query.Add("_pragma", "journal_mode(WAL)")
	}
	// A URI, so that no letter of the path is taken for a parameter.
	name := url.URL{Scheme: "file", Path: filepath.ToSlash(abs), RawQuery: query.Encode()}
	connector, err := sqlite.NewConnector(name.String())
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(attentive{connector, abs})
	db.SetMaxOpenConns(maxConns)
	return db, nil
}

// local says what is wrong with a directory on a file system of this kind. What else is
// wrong with it SQLite will say.
func local(dir, kind string, err error) error {
	if err != nil || kind == "" {
		return nil //nolint:nilerr // see above
	}
	return store.Wrong("the directory %s is on a file system of the kind %s, which is or may be on another machine: its locks are not reliable. "+
		"Use a local disk, or a server; if only this machine uses it, set Options.AllowNetwork (allow_network=true in an address)", dir, kind)
}

// Open returns a handle on the election that u names, with a pool of its own, which Close
// closes:
//
//	sqlite:///var/lib/myapp/app.db?election=web
//	sqlite:app.db?election=web&create=true
//
// The second form is relative to the working directory. The parameter election is required. Others
// are table ("leaderelection"), create=true to make the file and the table if they are missing,
// busy_timeout (2s), and allow_network=true for Options.AllowNetwork. Open reads nothing.
func Open(ctx context.Context, u *url.URL) (*lesql.Decider, error) {
	d, err := open(ctx, u)
	if err != nil {
		return nil, store.OpenError("sql", u, err)
	}
	return d, nil
}

func open(ctx context.Context, u *url.URL) (*lesql.Decider, error) {
	path := u.Path
	var err error
	if u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return nil, err
		}
	}
	switch {
	case u.Scheme != "sqlite":
		return nil, fmt.Errorf("the scheme is %q, and must be sqlite", u.Scheme)
	case u.User != nil:
		return nil, errors.New("a file has no user")
	case u.Host != "" && u.Host != "localhost":
		return nil, fmt.Errorf("the host is %q, and a file is on this machine: write sqlite:///path (three slashes), or sqlite:path", u.Host)
	case path == "" || strings.HasSuffix(path, "/") || path == ":memory:":
		return nil, errors.New("it names no file: write sqlite:///path/to/app.db")
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	election, table := p.String("election"), cmp.Or(p.String("table"), "leaderelection")
	if election == "" {
		p.Wrong("it lacks the parameter election: add ?election=name")
	} else if err := lesql.Check(table, election); err != nil {
		p.Wrong("%w", err)
	}
	opts := &Options{Create: p.Bool("create"), BusyTimeout: p.Duration("busy_timeout"), AllowNetwork: p.Bool("allow_network")}
	if err := p.Rest(); err != nil {
		return nil, err
	}
	db, done, err := clients.Open(ctx, fmt.Sprint(path, *opts), func(context.Context) (*sql.DB, func() error, error) {
		db, err := NewDB(path, opts)
		if err != nil {
			return nil, nil, err
		}
		return db, db.Close, nil
	})
	if err != nil {
		return nil, err
	}
	return lesql.NewDecider(db, Dialect(), table, election, &lesql.Options{CreateTable: opts.Create, Close: done}), nil
}
