package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/postgres/internal/commit"
	"github.com/c8e606e4/leaderelection/internal/clients"
)

// What Open sets if the address does not say otherwise, so that an outage keeps
// neither the connections nor a candidate busy for longer than it lasts.
const (
	connectTimeout = 5 * time.Second
	pingTimeout    = 5 * time.Second
	maxConns       = 10 // one is mostly in use; those that broke count until they are closed
	// pingAfter is how long a connection was idle before it is tried out first,
	// which costs a round trip: a leader extends more often than that.
	pingAfter = 30 * time.Second
)

// Open returns a handle on the election that u names, with a pool of its own, which
// Close closes:
//
//	postgres://user@host:5432/database?election=web
//	postgresql://pooler:6432/database?election=web&listen_url=postgres%3A%2F%2Fdb%2Fdatabase
//
// The parameter election is required. Others are:
//
//   - table ("leaderelection" by default) and create=true for Options.CreateTable;
//   - feed_silence, listen_url for Options.Listen, and listen=false for Options.NoListen;
//   - tls_ca, tls_cert and tls_key, files in PEM form. They imply TLS: sslmode is then verify-full,
//     unless it is require or verify-ca;
//   - those of pgxpool.ParseConfig, such as sslmode, channel_binding or pool_max_conns.
//
// PGHOST, PGUSER, PGPASSWORD, ~/.pgpass and the others that libpq knows complete the address. By
// default connect_timeout is 5 s, pool_max_conns 10, and with several hosts target_session_attrs
// read-write. Write a blank in a value as %20. The password file, the service file and certificates
// are read again for each connection, so you can renew them without a restart. Open does not
// connect.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, err := open(ctx, u)
	if err != nil {
		return nil, store.OpenError("postgres", u, err)
	}
	return d, nil
}

// known are the parameters of pgx's that an address may have. PostgreSQL takes any
// other one for a setting of the session, and refuses it only when connecting.
var known = []string{
	"application_name", "channel_binding", "connect_timeout", "database", "default_query_exec_mode", "description_cache_capacity",
	"host", "krbspn", "krbsrvname", "max_protocol_version", "min_protocol_version", "options", "passfile", "password",
	"pool_health_check_period", "pool_max_conn_idle_time", "pool_max_conn_lifetime", "pool_max_conn_lifetime_jitter",
	"pool_max_conns", "pool_min_conns", "pool_min_idle_conns", "pool_ping_timeout", "port", "require_auth", "search_path", "service",
	"servicefile", "sslcertmode", "sslmode", "sslnegotiation", "sslpassword", "sslsni", "statement_cache_capacity",
	"target_session_attrs", "user",
}

func open(ctx context.Context, u *url.URL) (*Decider, error) {
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, fmt.Errorf("the scheme is %q, and must be postgres", u.Scheme)
	}
	if u.Opaque != "" || u.Host == "" && u.Path == "" {
		return nil, errors.New("it must begin with postgres:// and name a host or a database")
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	election, table := p.String("election"), cmp.Or(p.String("table"), "leaderelection")
	if election == "" {
		p.Wrong("it lacks the parameter election: add ?election=name")
	} else if err := checkNames(table, election); err != nil {
		p.Wrong("%w", err)
	}
	opts, listen := options(p)
	files := p.TLSFiles()
	theirs := p.Take("pgx's "+strings.Join(known, ", "), func(name string) bool { return slices.Contains(known, name) })
	switch mode := theirs.Get("sslmode"); {
	case mode == "disable" || mode == "allow" || mode == "prefer":
		files.Exclude(p, "sslmode="+mode)
	case mode == "" && !files.None():
		theirs.Set("sslmode", "verify-full")
	}
	if err := p.Rest(); err != nil {
		return nil, err
	}
	for name, file := range map[string]string{"sslrootcert": files.CA, "sslcert": files.Cert, "sslkey": files.Key} {
		if file != "" {
			theirs.Set(name, file)
		}
	}
	rest := *u
	// Who names several hosts means the one that takes writes.
	if strings.Contains(cmp.Or(u.Host, theirs.Get("host"), os.Getenv("PGHOST")), ",") && !theirs.Has("target_session_attrs") && os.Getenv("PGTARGETSESSIONATTRS") == "" {
		theirs.Set("target_session_attrs", "read-write")
	}
	// As libpq does, pgx takes a plus sign for one, and not for a blank.
	rest.RawQuery = strings.ReplaceAll(theirs.Encode(), "+", "%20")
	pool, done, err := clients.Open(ctx, rest.String(), func(ctx context.Context) (*pgxpool.Pool, func() error, error) {
		pool, err := newPool(ctx, &rest, theirs.Has("pool_max_conns"))
		if err != nil {
			return nil, nil, err
		}
		return pool, func() error { pool.Close(); return nil }, nil
	})
	if err != nil {
		return nil, err
	}
	d := NewDecider(pool, table, election, opts)
	d.close, d.b.own = done, pool
	d.election.Drop = func(time.Time) { pool.Reset() }
	if opts.Listen != nil {
		d.b.ear = line{pool, listen}
	}
	return d, nil
}

// line is what the feeds have in common that listen by one connection of a URL's own.
type line struct {
	pool *pgxpool.Pool
	url  string
}

func options(p *store.Params) (opts *Options, listen string) {
	opts = &Options{
		CreateTable: p.Bool("create"),
		NoListen:    p.OneOf("listen", "true", "false") == "false",
		FeedSilence: p.Duration("feed_silence"),
	}
	if listen = p.String("listen_url"); listen != "" {
		if _, err := pgx.ParseConfig(listen); err != nil {
			p.Wrong("the parameter %q: %w", "listen_url", err)
			return opts, listen
		}
		opts.Listen = func(ctx context.Context) (*pgx.Conn, error) {
			config, err := pgx.ParseConfig(listen) // of the files as they are now
			if err != nil {
				return nil, err
			}
			patient(config)
			return pgx.ConnectConfig(ctx, config)
		}
	}
	return opts, listen
}

func newPool(ctx context.Context, u *url.URL, sized bool) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, err
	}
	Prepare(config)
	config.BeforeConnect = renew(u.String())
	if !sized {
		config.MaxConns = maxConns
	}
	return pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
}

// renew has a connection made by what the files say now: certificates, the password file, the service
// file. Pgx reads them once.
func renew(address string) func(context.Context, *pgx.ConnConfig) error {
	return func(_ context.Context, config *pgx.ConnConfig) error {
		now, err := pgx.ParseConfig(address)
		if err != nil {
			return err
		}
		config.User, config.Password = now.User, now.Password
		config.Host, config.Port, config.TLSConfig, config.Fallbacks = now.Host, now.Port, now.TLSConfig, now.Fallbacks
		return nil
	}
}

// patient bounds how long a connection may take to be made, where the address or the
// environment does not.
func patient(config *pgx.ConnConfig) {
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
}

// Prepare sets in a pool's configuration what Open sets in its own: ShouldPing, a limit for making
// a connection if there is none, and an OnNotice that notices a cancelled wait for a standby (see
// the package comment), and calls the OnNotice that was there before.
func Prepare(config *pgxpool.Config) {
	patient(config.ConnConfig)
	if config.PingTimeout == 0 {
		config.PingTimeout = pingTimeout
	}
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
	commit.Notice(config)
}

// patience is how long a connection of the pool, and a standby's confirmation of what is
// there already, is waited for: less than a quarter of the usual term, after which the
// campaign gives the call up, and would not hear why.
const patience = 3 * time.Second

// lender is a pool that says so if it has no connection to lend. The server is not to blame
// for that.
type lender struct{ *pgxpool.Pool }

// Acquire lends a connection, to be released.
func (l lender) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	c, err := l.Pool.Acquire(within)
	if s := l.Stat(); err != nil && within.Err() != nil && s.AcquiredConns() >= s.MaxConns() {
		return nil, fmt.Errorf("waited for a connection of the pool for %v: all %d are in use. Give the election a pool of its own, or this one more connections (pool_max_conns): %w",
			time.Since(begun).Round(time.Millisecond), s.MaxConns(), err)
	}
	return c, err
}

// QueryRow is that of the pool.
func (l lender) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c, err := l.Acquire(ctx)
	if err != nil {
		return lent{err: err}
	}
	return lent{c, c.QueryRow(ctx, sql, args...), nil}
}

// Exec is that of the pool.
func (l lender) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c, err := l.Acquire(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := c.Exec(ctx, sql, args...)
	commit.Release(c, err)
	return tag, err
}

// unheard closes the idle connections of a pool of Open's if err is that the server was not heard in
// time: in a feed, or in a part of a call. Those in use are closed when they are given back.
func (b *backend) unheard(ctx context.Context, err error) {
	if b.own != nil && err != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
		b.own.Reset()
	}
}

// lent is a row, and the connection to give back after it.
type lent struct {
	c   *pgxpool.Conn
	row pgx.Row
	err error
}

// Scan implements pgx.Row.
func (r lent) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	err := r.row.Scan(dest...)
	commit.Release(r.c, err)
	return err
}
